"""Which files matter for a task or a question, and the text that says so within a number of tokens."""
