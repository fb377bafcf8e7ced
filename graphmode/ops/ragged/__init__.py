"""Sequences of different length in batches of few static shapes."""
