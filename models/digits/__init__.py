"""A convolutional network that learns to read digits: the training step as one graph."""
