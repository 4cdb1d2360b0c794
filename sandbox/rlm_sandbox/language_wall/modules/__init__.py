"""What a cell may import, and the shims that take the place of what is dangerous in it."""
