"""Signatures that show no object that a session may not hold.

A default is an object of the library: `yaml.parse` has the loader as its own that runs whatever a text names. While the
session's code runs, such a default, or an annotation, is shown as text.
"""

from __future__ import annotations

import inspect
import types
from typing import Any

from rlm_sandbox.language_wall.audit_hook import is_armed
from rlm_sandbox.language_wall.modules.in_place import replace_in
from rlm_sandbox.language_wall.registry import HIDDEN


def signature(obj: Any, *, follow_wrapped: bool = True) -> inspect.Signature:
    """``inspect.signature``; annotations written as text stay text."""
    return inspect.signature(obj, follow_wrapped=follow_wrapped)


def harden_signatures() -> None:
    """Change the one function behind ``inspect``'s: text is not evaluated with the real builtins, either."""
    replace_in(inspect, "_signature_from_callable", _showing)


def _showing(real: Any) -> Any:
    def _signature_from_callable(obj: Any, **options: Any) -> Any:
        if not is_armed():
            return real(obj, **options)
        if options.get("eval_str"):
            raise TypeError("annotations written as text are not evaluated in this session: leave eval_str out")
        found = real(obj, **(options | {"sigcls": inspect.Signature}))
        if type(found) is not inspect.Signature:
            return found
        shown, wanted = _shown(found), options["sigcls"]
        if wanted is inspect.Signature:
            return shown
        return wanted(tuple(shown.parameters.values()), return_annotation=shown.return_annotation)

    return _signature_from_callable


def _shown(found: inspect.Signature) -> inspect.Signature:
    parameters = [
        each.replace(default=_value(each.default), annotation=_value(each.annotation))
        for each in found.parameters.values()
    ]
    return found.replace(parameters=parameters, return_annotation=_value(found.return_annotation))


def _value(value: Any) -> Any:
    return repr(value) if value in HIDDEN or issubclass(type(value), types.ModuleType) else value
