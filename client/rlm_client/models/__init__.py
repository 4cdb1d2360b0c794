"""Language models that answer: one small interface, two kinds of endpoint behind it, and their configuration."""
