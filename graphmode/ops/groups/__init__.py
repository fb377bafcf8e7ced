"""Reductions over groups of rows."""
