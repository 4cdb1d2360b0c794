"""Guards: compiled cells call them for reads, writes, attributes and classes that could be dangerous."""
