"""Completion and inspection. They read objects, and never run code of the session.

A front end asks at each key press, between cells: a property or a ``__getattr__`` would run unasked.
"""
