"""Snapshots inside a worker: the variables of a session as bytes, and back, in the way that SECURITY.md describes."""
