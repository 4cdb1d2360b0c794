"""How a session runs its requests, one after the other, and what the next supervisor needs to go on."""
