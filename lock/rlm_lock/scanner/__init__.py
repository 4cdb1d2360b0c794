"""The scanner process: it keeps one project's snapshot up to date, and answers the daemon's questions about it."""
