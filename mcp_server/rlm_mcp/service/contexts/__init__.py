"""Texts by name: loading, reading, searching, sharing."""
