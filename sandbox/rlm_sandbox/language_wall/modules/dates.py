"""``date.replace`` that looks at the object that it is called with.

Before 3.13 CPython makes the result by the class of the object and fills in what a date has. A ``datetime`` made so
keeps whatever stood in its memory where it looks for its time zone, and takes it for an object.
"""

from __future__ import annotations

import datetime as dt
import sys
from typing import Any, Final

from rlm_sandbox.language_wall.modules.type_slots import modified, namespace_of
from rlm_sandbox.language_wall.registry import dict_of

_LOOKS_ITSELF: Final = (3, 13)


def harden_dates() -> None:
    """Change the method in place: it is called by each class derived from ``date`` too."""
    real: Any = dict_of(dt.date)["replace"]
    if sys.version_info >= _LOOKS_ITSELF or hasattr(real, "__code__"):
        return

    def replace(self: Any, /, *args: Any, **changes: Any) -> Any:
        if issubclass(type(self), dt.datetime):
            raise TypeError("date.replace() takes a date: write moment.replace(...) for a datetime")
        return real(self, *args, **changes)

    for attribute in ("__name__", "__qualname__", "__doc__"):  # not `wraps`, which would keep the real one in it
        setattr(replace, attribute, getattr(real, attribute))
    namespace_of(dt.date)["replace"] = replace
    modified(dt.date)
