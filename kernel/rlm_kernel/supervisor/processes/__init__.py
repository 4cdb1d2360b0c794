"""Kernel processes as the system shows them: links, forks, zygotes, walls, and the memory that they take."""
