"""Cells as agents see them: runs that outlast a call, and the pictures that they show."""
