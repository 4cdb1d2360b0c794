"""The Jupyter sockets of a session, and what passes between its clients and its kernel."""
