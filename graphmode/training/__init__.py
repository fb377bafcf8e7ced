"""Training: the loop and what feeds it."""
