"""What a gradient is to be, where it is not the derivative."""
