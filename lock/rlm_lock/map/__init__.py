"""Which files matter for what somebody works on or asks, and the text that says so within a number of tokens."""
