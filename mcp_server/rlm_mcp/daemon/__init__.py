"""The daemon process: it serves MCP to every client of one user."""
