"""Branches and loops that take modules and have gradients."""
