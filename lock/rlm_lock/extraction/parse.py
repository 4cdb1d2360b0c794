"""What one file's text defines, imports and mentions. Only confined helper processes call this: parsers are native."""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING

from rlm_lock.extraction.imports import imports_of
from rlm_lock.extraction.languages import grammar_of, grammars_by_name
from rlm_lock.extraction.limits import LARGEST, is_binary, reason_against
from rlm_lock.extraction.words import words_of
from rlm_lock.model import Definition, Extract

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_DEFINITIONS = 1_000
"""Maximum number of definitions kept of one file, in order: only generated files have more."""
_MOST_STATEMENTS = 500
_LONGEST_STATEMENT = 4_000
_SOUND = re.compile(r"[^\s\x00-\x1f\x7f]{1,80}")


def load_grammars() -> None:
    """Load every grammar, for a process that soon may not open files any more."""
    importlib.import_module("rlm_lock.extraction.grammars")


def make_ready(path: str) -> None:
    """Compile the queries that the name of a file calls for, so that the first file of a language need not wait.

    A query takes from 1 to 100 ms to compile, and a project has files of few languages.
    """
    from rlm_lock.extraction.grammars import tools_of

    for grammar in grammars_by_name(path):
        tools_of(grammar)


def extract(path: str, data: bytes) -> Extract:
    """Return what is kept of a file.

    Args:
        path: relative to the project's root; only its last part matters.
        data: the whole content. Only the caller limits the time, and may have to end the process.
    """
    if is_binary(data):
        return Extract(note="binary")
    grammar = grammar_of(path, data)
    note = reason_against(data) if grammar else ""
    definitions: tuple[Definition, ...] = ()
    imports: tuple[str, ...] = ()
    if grammar and not note:
        definitions, statements = _parsed(grammar, data)
        imports = imports_of(grammar, path, statements)
    words = words_of(data[:LARGEST], without=(d.name for d in definitions))
    return Extract(definitions=definitions, imports=imports, words=words, note=note)


def _parsed(grammar: str, data: bytes) -> tuple[tuple[Definition, ...], list[str]]:
    """Return the definitions in the order of the file, and the text of each import statement."""
    from rlm_lock.extraction.grammars import tools_of

    parser, cursor = tools_of(grammar)
    captures = cursor.captures(parser.parse(data).root_node)
    statements = captures.pop("import", [])
    by_start: dict[int, Definition] = {}
    # A method is also a function in grammars that have one kind of node for both.
    for kind in sorted(captures, key=lambda kind: kind == "method"):
        if kind.startswith("_"):
            continue
        for node in captures[kind]:
            name = _text(node, data, 100)
            if _SOUND.fullmatch(name):
                by_start[node.start_byte] = Definition(name, kind, node.start_point[0] + 1)
    definitions = tuple(by_start[start] for start in sorted(by_start)[:MOST_DEFINITIONS])
    ordered = sorted(statements, key=lambda node: node.start_byte)[:_MOST_STATEMENTS]
    return definitions, [_text(node, data, _LONGEST_STATEMENT) for node in ordered]


def _text(node: Node, data: bytes, longest: int) -> str:
    return data[node.start_byte : min(node.end_byte, node.start_byte + longest)].decode("utf-8", "replace")
