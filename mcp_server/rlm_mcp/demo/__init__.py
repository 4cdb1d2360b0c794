"""The demonstration: one root agent and three sub-agents, real MCP clients, share one large text by name."""
