"""The language wall: harmless code runs natively, dangerous code meets a guard or is refused."""
