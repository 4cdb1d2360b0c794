"""The supervisor: one process that owns the Jupyter sockets of every session and relays raw parts to the kernels.

Because the supervisor owns the sockets, no client notices when a kernel process is replaced: after a crash or a cell
that could not be stopped, a dormant copy or a fresh kernel continues behind the same sockets. The supervisor also
enforces what must not be left to the kernel: time, memory, output.
"""
