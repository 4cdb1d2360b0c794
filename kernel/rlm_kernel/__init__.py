"""The Jupyter side of rlm-kernel: contexts, kernel processes and the host that owns them."""
