"""One request of a session: its queue, its limits, its output, its queries, and its notes."""
