"""A text in memory: its bytes, the index of its lines, and strings and lists over both that copy nothing."""
