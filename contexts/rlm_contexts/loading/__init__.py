"""Sources of texts: files, folders, patterns, archives, and what helper processes read."""
