"""A session without processes around it: the language wall alone, cells, and snapshots of its variables.

One lab for each process, as there is one wall. Whoever needs several forks.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import linecache
import tempfile
from pathlib import Path
from typing import Any

from rlm_kernel.worker.snapshots.environment import Environment
from rlm_kernel.worker.snapshots.image import Image, read_image
from rlm_kernel.worker.snapshots.restoring import Restorer
from rlm_kernel.worker.snapshots.saving import Saver
from rlm_sandbox import policy as policies
from rlm_sandbox.language_wall.audit_hook import trusted
from rlm_sandbox.language_wall.wall import LanguageWall


class Lab:
    """Cells under a policy, and their variables saved and restored."""

    def __init__(self, policy: str = "default") -> None:
        folder = Path(tempfile.mkdtemp(prefix="rlm-lab-"))
        found = policies.resolve(policies.load_policy(policy), workspace=None, scratch=folder)
        LanguageWall.preload(found)
        self.wall = LanguageWall(found)
        self.namespace: dict[str, Any] = {"__name__": "__main__"}
        self.wall.prepare(self.namespace)
        self.hidden = set(self.namespace)
        self.cells = 0
        self.environment = Environment(self.wall, self.namespace, {}, lambda _n, text, _s: text, [])

    def run(self, text: str) -> None:
        """Run a cell; it may await."""
        self.cells += 1
        filename = f"<cell {self.cells}>"
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        self.wall.begin_cell()
        code = self.wall.compile(text, filename, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        self.wall.prepare(self.namespace)
        with self.wall.user():
            made = eval(code, self.namespace)
            if inspect.iscoroutine(made):
                _loop().run_until_complete(made)

    def value(self, text: str) -> Any:
        """What an expression of the session is."""
        self.run(f"__answer = ({text})")
        return self.namespace.pop("__answer")

    def variables(self) -> dict[str, Any]:
        """The globals that cells have made."""
        return {n: v for n, v in self.namespace.items() if n not in self.hidden and not n.startswith("__")}

    def image(self, *names: str) -> Image:
        """An image of the variables, or of all."""
        found = self.variables()
        with self.wall.user():
            return Saver(self.environment).save({name: found[name] for name in names or found})

    def restore(self, data: bytes) -> dict[str, Any]:
        """Restore the bytes of an image."""
        image = read_image(memoryview(data))
        with self.wall.user():
            found = Restorer(self.environment).restore(image, self.namespace.__setitem__)
            self.namespace.update(found)
        return found


@trusted
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def bytes_of(image: Image) -> bytes:
    """The image as it is stored."""
    return b"".join(map(bytes, image.parts()))
