"""What is kept of a file's text: definitions, imports and words, packed small, under a key of how they were found."""

from __future__ import annotations

from rlm_lock.extraction.languages import extraction_key
from rlm_lock.extraction.packing import definitions_in, from_bytes, to_bytes
from rlm_lock.extraction.parse import extract, load_grammars

__all__ = ["definitions_in", "extract", "extraction_key", "from_bytes", "load_grammars", "to_bytes"]
