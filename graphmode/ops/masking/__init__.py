"""`Padded`, and reductions that heed a mask."""
