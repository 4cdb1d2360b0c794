"""The kernel process: all of ipykernel and IPython, in one single-threaded process whose only transport is a `Link`.

A *kernel process* is that process without a connection. Forked from the warm zygote it is a new session; forked between
two cells it is a child session or a dormant checkpoint. Nothing in this package opens a socket.
"""
