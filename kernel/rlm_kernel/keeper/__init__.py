"""The keeper: the small process that holds what outlives a supervisor. `keeper` is its whole program."""
