"""What is taken from files' texts: by confined processes, without secrets, within limits of time and memory."""
