"""Texts on disk: one file for each content, in a folder that every process of the user maps."""
