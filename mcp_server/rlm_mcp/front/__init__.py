"""The front process, ``rlm-kernel mcp``: what an MCP client starts. Standard library only."""
