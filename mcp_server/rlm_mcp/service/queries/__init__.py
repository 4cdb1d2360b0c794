"""Queries of code, answered by the agent, a configured model, or the client's own model."""
