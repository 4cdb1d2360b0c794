"""The version of rlm-kernel, in a module of its own: the front cannot afford ``importlib.metadata``."""

VERSION = "0.1.0"
