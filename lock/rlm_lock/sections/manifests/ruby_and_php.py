"""Manifests of Ruby and PHP: Gemfile, gemspecs, composer.json."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rlm_lock.sections.manifests.documents import json_table, table, text
from rlm_lock.sections.manifests.lines import lines_of
from rlm_lock.sections.manifests.model import RUNTIME, Declaration, Declared

_GEM = re.compile(r"""gem[\s(]+["']([^"']{1,200})["'](?:\s*,\s*["']([^"']{0,100})["'])?""")
_GEM_PATH = re.compile(r"""\bpath(?::|\s*=>)\s*["']([^"']{1,300})["']""")
_SPEC = re.compile(
    r"""\.add_(runtime_|development_|)dependency[\s(]+["']([^"']{1,200})["'](?:\s*,\s*["']([^"']{0,100})["'])?"""
)
_SPEC_NAME = re.compile(r"""\.(name|version)\s*=\s*["']([^"']{1,200})["']""")
_PLATFORM = re.compile(r"php(?:-\w+)?|hhvm|(?:ext|lib)-.*|composer(?:-.*)?")


def read_gemfile(source: str) -> Declared:
    """Read the gems that are named by literals."""
    found = Declared()
    for line in lines_of(source, "#"):
        if match := _GEM.match(line):
            place = _GEM_PATH.search(line)
            found.dependencies.append(Declaration(match[1], match[2] or "", RUNTIME, place[1] if place else ""))
    return found


def read_gemspec(source: str) -> Declared:
    """Read the gems that a gemspec adds by literals."""
    found = Declared()
    for line in lines_of(source, "#"):
        if match := _SPEC.search(line):
            group = "development" if match[1] == "development_" else RUNTIME
            found.dependencies.append(Declaration(match[2], match[3] or "", group))
        elif match := _SPEC_NAME.search(line):
            found.name, found.version = (match[2], found.version) if match[1] == "name" else (found.name, match[2])
    return found


def read_composer(source: str) -> Declared:
    """Read a PHP package; packages of a repository of type `path` are the members of its workspace."""
    whole = json_table(source)
    found = Declared(text(whole, "name"), text(whole, "version"))
    for key, group in (("require", RUNTIME), ("require-dev", "dev")):
        for name, wanted in table(whole, key).items():
            if not _PLATFORM.fullmatch(name):
                found.dependencies.append(Declaration(name, text(wanted), group))
    found.members = list(_paths(whole.get("repositories")))
    return found


def _paths(repositories: object) -> Iterator[str]:
    listed = repositories if isinstance(repositories, list) else list(table(repositories).values())
    for repository in listed:
        if text(repository, "type") == "path" and text(repository, "url"):
            yield text(repository, "url")
