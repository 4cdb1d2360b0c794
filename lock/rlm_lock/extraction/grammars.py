"""The parsers themselves: native code. Only confined helpers load them, see `rlm_lock.extraction.parse`."""

from __future__ import annotations

from collections.abc import Mapping

import tree_sitter_bash
import tree_sitter_c
import tree_sitter_c_sharp
import tree_sitter_cpp
import tree_sitter_go
import tree_sitter_java
import tree_sitter_javascript
import tree_sitter_php
import tree_sitter_python
import tree_sitter_ruby
import tree_sitter_rust
import tree_sitter_typescript
from tree_sitter import Language, Parser, Query, QueryCursor

from rlm_lock.extraction.queries import QUERIES

LANGUAGES: Mapping[str, Language] = {
    "bash": Language(tree_sitter_bash.language()),
    "c": Language(tree_sitter_c.language()),
    "c_sharp": Language(tree_sitter_c_sharp.language()),
    "cpp": Language(tree_sitter_cpp.language()),
    "go": Language(tree_sitter_go.language()),
    "java": Language(tree_sitter_java.language()),
    "javascript": Language(tree_sitter_javascript.language()),
    "php": Language(tree_sitter_php.language_php()),
    "python": Language(tree_sitter_python.language()),
    "ruby": Language(tree_sitter_ruby.language()),
    "rust": Language(tree_sitter_rust.language()),
    "tsx": Language(tree_sitter_typescript.language_tsx()),
    "typescript": Language(tree_sitter_typescript.language_typescript()),
}
"""Every grammar by its name."""
_MOST_MATCHES = 1_024
"""States that a query may hold at once; without a limit an unclosed bracket takes a quarter of a minute."""

_tools: dict[str, tuple[Parser, QueryCursor]] = {}


def tools_of(grammar: str) -> tuple[Parser, QueryCursor]:
    """Return the parser of a grammar, and the cursor that finds the nodes of its query."""
    if grammar not in _tools:
        language = LANGUAGES[grammar]
        query = Query(language, QUERIES[grammar])
        _tools[grammar] = Parser(language), QueryCursor(query, match_limit=_MOST_MATCHES)
    return _tools[grammar]
