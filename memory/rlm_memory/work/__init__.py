"""The queue: what is ready, who works on it, how far the work is, and what is handed on."""
