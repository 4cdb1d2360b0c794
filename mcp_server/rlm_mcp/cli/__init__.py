"""The command line: ``rlm-kernel``."""
