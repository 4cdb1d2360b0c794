"""The sandbox of rlm-kernel: policies, the language wall, the operating-system walls."""
