"""The job `remote`: read a URL of another scheme than http(s) into a file, with fsspec and the package for the scheme.

These packages follow where their servers send them, without asking. So the process can reach the hosts of the URL only.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from io import RawIOBase
from typing import Any

import fsspec

from rlm_kernel.confined.gate import Gate
from rlm_kernel.confined.schemes import SCHEMES, scheme_of

Say = Callable[[dict[str, Any]], None]

_PIECE = 1 << 20


def prepare(request: dict[str, Any]) -> None:
    """Import what reads the scheme, while files can still be opened freely."""
    scheme = scheme_of(request["url"])
    importlib.import_module(SCHEMES[scheme].package)
    fsspec.get_filesystem_class(scheme)


def run(request: dict[str, Any], say: Say) -> None:
    """Copy what is at `url` into the file `fd`, at most `most` bytes, with the `account` if there is one."""
    url, most = request["url"], request["most"]
    scheme = SCHEMES[scheme_of(url)]
    reach = scheme.reach(url)
    gate = Gate(reach.hosts, reach.port)
    gate.close()
    try:
        with os.fdopen(request["fd"], "wb", buffering=0) as target:
            taken = _copied(url, scheme.options(request["account"]), target, most)
    except MemoryError:
        raise
    except Exception as problem:  # any library may be behind a scheme
        name = type(problem).__name__
        why = scheme.hints.get(name) or f"{name}: {problem}"
        if gate.refused is not None:
            why = f"it leads to the host {gate.refused!r}, and only {' and '.join(gate.hosts)} may be asked for it"
        what = f"{url} cannot be read ({why})"
        say({"fault": "source", "message": what, "advice": "give the URL of a file that can"})
    else:
        say({"size": taken})


def _copied(url: str, options: dict[str, Any], target: RawIOBase, most: int) -> int:
    scheme, _, place = url.partition("://")
    scheme = scheme.lower()  # as fsspec knows it
    system, path = fsspec.url_to_fs(f"{scheme}://{place}", skip_instance_cache=True, **options)
    if system.info(path)["type"] == "directory":
        raise IsADirectoryError("it is a folder")
    taken = 0
    with system.open(path, "rb", **SCHEMES[scheme].opening) as source:
        # One byte more than may be taken, so that who asked can tell.
        while taken <= most and (piece := source.read(min(_PIECE, most + 1 - taken))):
            taken += target.write(piece) or 0
    return taken
