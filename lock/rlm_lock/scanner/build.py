"""The program `python -m rlm_lock.scanner.build ROOT STORE VERSION`: build a version's index, at the lowest priority.

It is a process of its own: its memory is freed with it, and the scanner answers meanwhile.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

from rlm_ipc.processes import die_with_parent
from rlm_lock.index.base import IndexedFile, build
from rlm_lock.listing.table import FileTable
from rlm_lock.parsing.keys import parse_key
from rlm_lock.scanner.extracts import unpacked
from rlm_lock.scanner.places import index_folder, indexed_key
from rlm_lock.store import Store

_MEMORY = 1 << 30
_NICE = 10


def main() -> None:
    """Build the index that the arguments describe."""
    die_with_parent()
    os.nice(_NICE)
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    os.umask(0o077)
    root, folder, version = os.fsencode(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    with Store(folder, root) as store:
        table = store.table(version)
        if table is None:
            sys.exit(2)  # forgotten meanwhile
        build(index_folder(folder, root), _files(store, table))


def _files(store: Store, table: FileTable) -> Iterator[IndexedFile]:
    for row in table.present():
        path = table.paths[row]
        packed = store.packed(table.blob(row), parse_key(path)) if table.has_text(row) else None
        if unpacked(packed) is None:  # a forged extract from a captured helper must not end the build
            packed = None
        yield path, indexed_key(table, row, is_parsed=packed is not None), packed


if __name__ == "__main__":
    main()
