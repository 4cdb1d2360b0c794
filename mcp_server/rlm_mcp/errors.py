"""Errors of the MCP server, by whose fault they are.

::

    RlmMcpError
    ├── ClientFault            the client (or the agent behind it) sent something that cannot be served
    │   ├── MessageRefused     a line is no JSON-RPC message that we take; has the code and id to answer
    │   ├── HandshakeRefused       a connection did not open with the handshake line of our protocol
    │   └── WrongUsage         an argument of a command is none that can be taken
    └── SetupFault             the machine is not set up for what was asked (folders, ports, missing packages)

Every message says what to do next: it is read by an agent or by a person at a prompt.
"""

from __future__ import annotations

__all__ = [
    "ClientFault",
    "HandshakeRefused",
    "MessageRefused",
    "RlmMcpError",
    "SetupFault",
    "WrongUsage",
]


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
    """A connection to the daemon did not open with a handshake line that it understands."""


class WrongUsage(ClientFault):
    """An argument of a command is none that can be taken."""


class SetupFault(RlmMcpError):
    """The machine is not set up for what was asked; the message names the file, port or package."""
