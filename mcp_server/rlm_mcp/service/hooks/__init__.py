"""What hooks of agent programs tell the daemon, and what becomes of it."""
