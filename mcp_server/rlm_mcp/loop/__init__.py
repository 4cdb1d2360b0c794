"""The loop over a queue: it starts an agent program for each task, checks the result, and decides what is next.

`planner` decides, from rows alone. `driver` acts: it is a client of the daemon, and keeps its whole state in the
daemon's rows, so that another driver can continue if it is killed. Each task has a `launcher`, a small process that
holds the lease and starts one agent after the other.
"""
