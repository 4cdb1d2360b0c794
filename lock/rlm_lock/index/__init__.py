"""Inverted indexes of a project on disk: which files have a word, define a name, lie at a path, import which others."""
