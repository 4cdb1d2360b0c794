"""Guards: what compiled cells call for reads, writes, attributes and classes that could be dangerous."""
