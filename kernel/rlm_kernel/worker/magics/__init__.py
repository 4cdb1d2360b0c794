"""Magics, ``!`` and ``?``: those that a session has become part of the cell's syntax tree before the wall compiles it.

So no text is compiled, and no object of the session is looked at, by IPython's own machinery.
"""
