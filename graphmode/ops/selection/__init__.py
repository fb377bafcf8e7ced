"""What a mask or a value picks: rows, indices, distinct values, sets."""
