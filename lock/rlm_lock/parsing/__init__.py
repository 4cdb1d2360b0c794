"""Taking data from files' texts: by helper processes, without secrets, within limits of time and memory."""
