"""The language wall: what is harmless runs natively, what is dangerous meets a guard or is refused."""
