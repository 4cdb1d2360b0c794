"""The loop over a queue: it starts an agent program for each task, looks at what came of it, and decides what is next.

`planner` decides, from rows alone. `driver` does it: it is a client of the daemon, and keeps all that it knows in the
daemon's rows, so that another one can go on where it was killed. Each task has a `launcher`, a small process that the
lease is tied to and that starts one agent after the other.
"""
