"""How a session runs its requests, one after the other, and what the next supervisor needs in order to continue."""
