"""Walls of the operating system that a kernel process raises around itself: Landlock, seccomp, rlimits."""
