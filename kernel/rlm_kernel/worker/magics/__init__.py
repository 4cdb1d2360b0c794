"""Magics, ``!`` and ``?``: the supported ones become part of the cell's syntax tree before the wall compiles it.

So IPython's own machinery compiles no text and looks at no object of the session.
"""
