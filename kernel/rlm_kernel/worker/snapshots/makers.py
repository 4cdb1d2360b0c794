"""The functions that the pickle of a snapshot calls, by name only.

When a session is saved, the pickle refers to these. When it is restored, `restoring.Restorer` gives each its meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

Maker = Callable[..., Any]
HOME: Final = __name__


def _maker(name: str) -> Maker:
    def maker(*_: Any) -> NoReturn:
        raise TypeError(f"{name} has a meaning only inside a snapshot")

    maker.__name__ = maker.__qualname__ = name
    return maker


cls, fn, ext, builtin, module, method, instance, keyed, kind, context, content, query = map(
    _maker, "cls fn ext builtin module method instance keyed kind context content query".split()
)
MAKERS: Final[dict[str, Maker]] = {
    maker.__name__: maker
    for maker in (cls, fn, ext, builtin, module, method, instance, keyed, kind, context, content, query)
}
NAMES: Final = tuple(MAKERS)
