"""A recurrent network that learns to spell: a training step over a batch of texts as one graph."""
