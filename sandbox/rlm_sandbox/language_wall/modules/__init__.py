"""What a cell may import, and the shims that replace what is dangerous in it."""
