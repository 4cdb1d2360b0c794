"""Which files a project has, and which of them changed."""
