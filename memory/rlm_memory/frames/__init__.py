"""Frames: the tree of goals with what came of each, and the context that a model is given of it."""
