"""``typing_extensions`` of a session: the session's own ``typing``, and the few forms that an older Python lacks."""

from __future__ import annotations

import importlib
import types
import typing
from typing import Any, Final

from rlm_sandbox.language_wall.guards.attributes import protect

_FORMS: Final = ("ReadOnly", "TypeIs")
"""Objects that are only written in annotations.

The classes of the package are left out: it creates them its own way.
"""


def typing_extensions(names: types.ModuleType) -> types.ModuleType:
    """Return the module, made of what ``typing`` provides to a session.

    Raises:
        ImportError: The package is not installed.
    """
    real: Any = importlib.import_module("typing_extensions")
    made = types.ModuleType(real.__name__, real.__doc__)
    made.__dict__.update({"override": override}, **{name: names.__dict__[name] for name in names.__dict__["__all__"]})
    for name in _FORMS:
        form = getattr(real, name, None)
        if name not in made.__dict__ and isinstance(form, typing._SpecialForm):
            protect(type(form))
            made.__dict__[name] = form
    return made


def override(method: Any, /) -> Any:
    """Act as ``typing.override`` of Python 3.12, without the mark on the method, which no session may read."""
    return method
