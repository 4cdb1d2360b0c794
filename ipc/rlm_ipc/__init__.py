"""How the processes find each other and what they say.

Discovery, framing, and one module for each protocol. Standard library only.
"""
