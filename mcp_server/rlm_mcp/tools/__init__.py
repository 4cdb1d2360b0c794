"""The MCP tools: argument models, typed functions, and the registry that lists and calls them."""
