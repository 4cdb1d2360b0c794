"""Frames as the tools see them: goals that are started in forked sessions, and what is kept of them."""
