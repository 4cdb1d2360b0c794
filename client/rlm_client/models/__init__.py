"""Language models: one small interface, two kinds of endpoint, and their configuration."""
