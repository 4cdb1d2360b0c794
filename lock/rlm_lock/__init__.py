"""The project lock: one read-only snapshot of a project, versioned and shared by every agent."""
