"""Errors of the MCP server, by whose fault they are.

::

    RlmMcpError
    ├── ClientFault            the client (or the agent behind it) sent something that cannot be served
    │   ├── MessageRefused     a line is not a JSON-RPC message that we accept; has the code and id to answer
    │   ├── HandshakeRefused   a connection did not open with our protocol's handshake
    │   └── WrongUsage         an argument of a command is invalid
    └── SetupFault             the machine is not set up for it (folders, ports, missing packages)

Every message says what to do next, to an agent or to a person at a prompt.
"""

from __future__ import annotations


class RlmMcpError(Exception):
    """Base of every error that the MCP server raises on purpose."""


class ClientFault(RlmMcpError):
    """The client asked for something that cannot be served as it was asked."""


class MessageRefused(ClientFault):
    """A line from a client is not a message that can be served.

    ``code`` is the JSON-RPC error code to answer with, ``request_id`` the id to answer to (``None``: not
    known).
    """

    def __init__(self, code: int, message: str, request_id: str | int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.request_id = request_id


class HandshakeRefused(ClientFault):
    """A connection to the daemon did not open with a handshake that it understands."""


class WrongUsage(ClientFault):
    """An argument of a command is invalid."""


class SetupFault(RlmMcpError):
    """The machine is not set up for what was asked; the message names the file, port or package."""
