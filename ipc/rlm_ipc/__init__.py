"""How the processes find each other and what they say to each other.

Discovery, framing, and one module for each protocol. Standard library only.
"""
