"""Small projects for tests: an index of them, made from text alone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from rlm_lock.extraction.packing import from_bytes, to_bytes
from rlm_lock.extraction.parse import extract
from rlm_lock.index.base import build
from rlm_lock.index.project import ProjectIndex
from rlm_lock.map.project import ProjectMap


class Project:
    """Files by path, their extracts, and an index that may lag behind them until `index` is built or updated."""

    def __init__(self, folder: Path, files: Mapping[str, str]) -> None:
        self.folder = folder
        self.packed: dict[bytes, bytes] = {}
        for path, text in files.items():
            self._put(path, text)
        self.index = self.built()

    def _put(self, path: str, text: str) -> bytes:
        name = os.fsencode(path)
        self.packed[name] = to_bytes(extract(path, text.encode()))
        return name

    def built(self) -> ProjectIndex:
        """Return an index that is built anew from the files as they are."""
        build(self.folder, ((path, str(hash(data)), data) for path, data in sorted(self.packed.items())))
        return ProjectIndex.open(self.folder, lambda path: from_bytes(self.packed[path]).imports)

    def write(self, path: str, text: str) -> None:
        """Change a file, and tell the index."""
        name = self._put(path, text)
        data = self.packed[name]
        self.index.update(name, str(hash(data)), from_bytes(data))

    def delete(self, path: str) -> None:
        """Delete a file, and tell the index."""
        self.packed.pop(os.fsencode(path), None)
        self.index.remove(os.fsencode(path))

    @property
    def map(self) -> ProjectMap:
        """The map over the index as it is."""
        return ProjectMap(self.index, self.packed.get)

    def number(self, path: str) -> int:
        """Return a file's number."""
        number = self.index.number_of(os.fsencode(path))
        assert number is not None, path
        return number

    def imports(self, path: str) -> list[str]:
        """Return the paths that a file imports."""
        return sorted(self.index.text_of(n) for n in self.index.imports_of(self.number(path)))

    def importers(self, path: str) -> list[str]:
        """Return the paths that import a file."""
        return sorted(self.index.text_of(n) for n in self.index.importers_of(self.number(path)))
