"""Lengths, ranks and counts that are computed."""
