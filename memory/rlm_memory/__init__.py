"""The durable rows of rlm-kernel: sessions, contexts, handles, queries. No kernels, no MCP."""
