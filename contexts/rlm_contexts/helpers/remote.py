"""The job `remote`: read a URL of another scheme than http(s) into a file, with fsspec's package for the scheme.

These packages follow where their servers send them, without asking. So the process can reach only the hosts of the URL.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from io import RawIOBase
from typing import Any

import fsspec

from rlm_contexts.helpers.egress_filter import EgressFilter
from rlm_contexts.helpers.protocol import FaultKind, JobFault, JobSpec, ReadRemote, UrlFetched
from rlm_contexts.helpers.schemes import options, reach, rule_of, scheme_of
from rlm_sandbox.policy.urls import permits

Say = Callable[[UrlFetched], None]

_PIECE = 1 << 20


def prepare(request: ReadRemote) -> None:
    """Import the reader of the scheme, while files can still be opened freely.

    Raises: ImportError when nothing that is installed reads it.
    """
    scheme, chosen = scheme_of(request.url), rule_of(request.url).implementation
    if chosen is not None:
        module, name = chosen
        fsspec.register_implementation(scheme, getattr(importlib.import_module(module), name), clobber=True)
    try:
        fsspec.get_filesystem_class(scheme)
    except (ImportError, ValueError) as missing:
        raise ImportError(str(missing)) from missing


def run(spec: JobSpec, request: ReadRemote, say: Say) -> None:
    """Copy the contents of the URL into the open file of ``spec``."""
    url, account = request.url, request.account
    gate = EgressFilter(*reach(url, account.endpoint if account else None))
    gate.close()
    try:
        if not permits(request.permitted, url):
            raise PermissionError("the policy does not permit it")
        with os.fdopen(spec.open_file, "wb", buffering=0) as target:
            _copied(url, options(url, account), target, request.most)
    except MemoryError:
        raise
    except Exception as problem:  # any library may be behind a scheme
        name = type(problem).__name__
        why = rule_of(url).hints.get(name) or f"{name}: {problem}"
        if gate.refused is not None:
            why = f"it leads to the host {gate.refused!r}, but only {' and '.join(gate.hosts)} may be contacted for it"
        what = f"{url} cannot be read ({why})"
        raise JobFault(FaultKind.SOURCE, what, "give the URL of a file that can") from None
    say(UrlFetched())


def _copied(url: str, given: dict[str, Any], target: RawIOBase, most: int) -> None:
    place = f"{scheme_of(url)}://{url.partition('://')[2]}"  # fsspec knows schemes in lower case
    system, path = fsspec.url_to_fs(place, skip_instance_cache=True, **given)
    if system.info(path)["type"] == "directory":
        raise IsADirectoryError("it is a folder")
    taken = 0
    with system.open(path, "rb", **rule_of(url).opening) as source:
        # One byte more than allowed, so that the caller can tell.
        while taken <= most and (piece := source.read(min(_PIECE, most + 1 - taken))):
            taken += target.write(piece) or 0
