"""Adapters that make sessions the environment of other libraries; each module needs the extra of its name."""
