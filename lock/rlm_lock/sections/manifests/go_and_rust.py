"""Manifests of Go and Rust: go.mod, go.work, Cargo.toml."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rlm_lock.sections.manifests.documents import table, text, texts, toml_table
from rlm_lock.sections.manifests.lines import lines_of
from rlm_lock.sections.manifests.model import RUNTIME, Declaration, Declared


def _directives(source: str) -> Iterator[list[str]]:
    """Yield the directives of go.mod and go.work, each with its verb, including those in parentheses."""
    verb = ""
    for line in lines_of(source):
        code, _, remark = line.partition("//")
        words = code.split()
        if not words:
            continue
        if verb and words[0] == ")":
            verb = ""
        elif words[-1] == "(" and len(words) == 2:
            verb = words[0]
        else:
            yield [*([verb] if verb else []), *words, *(["//indirect"] if remark.strip() == "indirect" else [])]


def read_go_mod(source: str) -> Declared:
    """Read a module and its own requirements; a `replace` with a path makes a requirement local."""
    found = Declared()
    replaced: dict[str, str] = {}
    for words in _directives(source):
        if words[0] == "module" and len(words) > 1:
            found.name = words[1].strip('"')
        elif words[0] == "require" and len(words) > 2 and words[-1] != "//indirect":
            found.dependencies.append(Declaration(words[1].strip('"'), words[2]))
        elif words[0] == "replace" and "=>" in words and words[-1].startswith("."):
            replaced[words[1]] = words[-1]
    for dependency in found.dependencies:
        dependency.local = replaced.get(dependency.name, "")
    return found


def read_go_work(source: str) -> Declared:
    """Read the folders of a workspace."""
    return Declared(members=[words[1] for words in _directives(source) if words[0] == "use" and len(words) > 1])


def read_cargo(source: str) -> Declared:
    """Read a package and the workspace whose top it may be."""
    whole = toml_table(source)
    found = Declared(text(whole, "package", "name"), text(whole, "package", "version"))
    places: list[Mapping[str, object]] = [whole, *(table(part) for part in table(whole, "target").values())]
    for place in places:
        found.dependencies += _crates(table(place, "dependencies"), RUNTIME)
        found.dependencies += _crates(table(place, "dev-dependencies"), "dev")
        found.dependencies += _crates(table(place, "build-dependencies"), "build")
    found.dependencies += _crates(table(whole, "workspace", "dependencies"), "workspace")
    found.members = texts(whole, "workspace", "members")
    programs = whole.get("bin")
    found.entries = [text(one, "path") for one in programs if text(one, "path")] if isinstance(programs, list) else []
    return found


def _crates(crates: Mapping[str, object], group: str) -> Iterator[Declaration]:
    for name, wanted in crates.items():
        requirement = text(wanted) or text(wanted, "version") or text(wanted, "git")
        yield Declaration(text(wanted, "package") or name, requirement, group, text(wanted, "path"))
