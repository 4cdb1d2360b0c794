"""Hooks of agent programs: the program that they start, and the events that it passes on.

Standard library only, because a client waits for the program before and after each call of its tools.
"""
