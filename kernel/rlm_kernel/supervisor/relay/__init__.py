"""The Jupyter sockets of a session, and the traffic between its clients and its kernel."""
