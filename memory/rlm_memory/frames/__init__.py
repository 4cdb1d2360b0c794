"""Frames: the tree of goals with their results, and the context that a model gets from it."""
