"""``copy`` by the session's rules: an object says how it is copied, and could say that another be changed.

``copy.copy(x)`` asks ``x`` for a function that makes the copy and for the state to give it. A class of the session
could name a library's object as the copy, and have any attribute of it set. The functions are changed in place,
because libraries copy what they are given, too (``dataclasses.asdict``).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

from rlm_sandbox.language.guards import refuse
from rlm_sandbox.language.host import HOST
from rlm_sandbox.language.names import may_store

_HARDENED: Final[list[Any]] = []


def harden_copy() -> None:
    """Make ``copy`` set state only on an object of the class that is copied, and no attribute that is plumbing."""
    module: Any = vars(copy)
    real: Callable[..., Any] = module["_reconstruct"]
    if real in _HARDENED:
        return

    def reconstruct(x: Any, memo: Any, func: Any, args: Any, state: Any = None, *rest: Any, **options: Any) -> Any:
        maker = _same_class(type(x), func) if HOST.stands and state is not None else func
        return real(x, memo, maker, args, state, *rest, **options)

    _HARDENED.append(reconstruct)
    module["_reconstruct"] = reconstruct
    module["setattr"] = _set_state


def _same_class(cls: type, func: Callable[..., Any]) -> Callable[..., Any]:
    def make(*args: Any) -> Any:
        made = func(*args)
        if type(made) is not cls:
            raise TypeError(f"a copy of a '{cls.__name__}' object must be one, too, to be given its state")
        return made

    return make


def _set_state(obj: Any, name: str, value: Any) -> None:
    if HOST.stands and (type(name) is not str or not may_store(name)):
        refuse(str(name), "may not be part of the state of a copy")
    setattr(obj, name, value)
