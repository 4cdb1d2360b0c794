"""The web page of the daemon: what a person watches sessions with, and the few things that can be done from it."""
