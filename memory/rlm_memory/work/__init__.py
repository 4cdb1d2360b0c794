"""The queue: what is ready, who works on it, how far it has come, and what is handed on."""
