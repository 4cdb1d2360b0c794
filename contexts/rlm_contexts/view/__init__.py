"""A stored text as a variable of a session: what code in a cell sees of it."""
