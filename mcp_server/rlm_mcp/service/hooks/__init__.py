"""Events from hooks of agent programs, and their effects."""
