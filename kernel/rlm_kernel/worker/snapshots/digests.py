"""Hashes of variables that are equal for equal values in any kernel, to compare a session with its snapshot.

Two images of one session may differ in something that belongs to no value: which equal strings are one object. So a
hash of each variable is made of its opcodes, without that. It takes much longer than the image itself, and is made only
when the images differ.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickletools
from collections.abc import Iterator
from typing import Any

from rlm_ipc.messages import plain
from rlm_kernel.worker.snapshots.common import Names
from rlm_kernel.worker.snapshots.environment import Environment
from rlm_kernel.worker.snapshots.image import Image
from rlm_kernel.worker.snapshots.saving import Saver


def digest_of_each(environment: Environment, values: Names) -> dict[str, str]:
    """Return an identity of each value, by name; for one that cannot be saved, the reason."""
    found = {}
    for name, value in values.items():
        try:
            found[name] = _digest(Saver(environment).save({"": value}))
        except Exception as error:
            found[name] = f"not saved: {type(error).__name__}"
    return found


def _digest(image: Image) -> str:
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps(plain(image.tables), sort_keys=True).encode())
    for part in _canonical(b"".join(image.values)):
        digest.update(repr(part).encode("utf-8", "surrogatepass"))
    for buffer in image.buffers:
        digest.update(buffer)
    return digest.hexdigest()


def _canonical(values: bytes) -> Iterator[Any]:
    """Yield the opcodes of pickles, with strings and bytes written out wherever the memo stands for them."""
    memo: list[tuple[Any, int]] = []
    stream, last, objects = io.BytesIO(values), None, 0
    while stream.tell() < len(values):
        for opcode, argument, _ in pickletools.genops(stream):
            if opcode.name == "FRAME":
                continue
            if opcode.name == "MEMOIZE":
                objects += last is None
                memo.append((last, objects))
                continue
            if opcode.name in ("BINGET", "LONG_BINGET"):
                last, number = memo[int(argument or 0)]
                yield last if last is not None else ("GET", number)
                continue
            is_text = "UNICODE" in opcode.name or "BINBYTES" in opcode.name
            last = (opcode.name.removeprefix("SHORT_"), argument) if is_text else None
            yield last if last is not None else (opcode.name, argument)
