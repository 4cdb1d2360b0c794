"""The MCP server of rlm-kernel: stdio front, daemon, tools and command line."""
