"""Immutable texts: stored once by content, mapped into every kernel, paged and searched in place."""
