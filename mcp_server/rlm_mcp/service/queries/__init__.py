"""Queries of code, and who answers them: the agent, a configured model, or the client's own."""
