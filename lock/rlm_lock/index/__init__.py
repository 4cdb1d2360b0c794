"""Inverted indexes of a project on disk: which files contain a word, define a name, match a path, import others."""
