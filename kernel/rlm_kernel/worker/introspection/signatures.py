"""Signatures of callables, read from their code objects. Defaults are shown if they are plain values."""

from __future__ import annotations

import inspect
import re
import types
from typing import Any, Final

from rlm_ipc.late_dataclasses import dataclass
from rlm_kernel.worker.introspection.known import Known
from rlm_kernel.worker.introspection.static import (
    FUNCTIONS,
    MISSING,
    class_entry,
    doc_of,
    entry,
    implementation,
    is_class,
    library_callable,
    text_entry,
)
from rlm_kernel.worker.kinds import one_of
from rlm_kernel.worker.traceback import name_of
from rlm_kernel.worker.variables import plain_repr
from rlm_sandbox.language_wall.registry import dict_of

_SPACE: Final = re.compile(r"\s+")
_SELF: Final = re.compile(r"^\(\$?(?:self|module|type|cls|mcs)(?:, /)?(?:, )?")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter, as a signature shows it."""

    name: str
    shown: str
    keyword: bool
    """Whether a call can pass it by name."""


def is_callable(found: Known) -> bool:
    """Whether an object can be called."""
    if is_class(found.value):
        return True
    return one_of(found.kind, (types.MethodType, *FUNCTIONS)) or class_entry(found.kind, "__call__") is not MISSING


def signature(found: Known) -> str:
    """Return the signature with its parentheses; empty if none is available."""
    function, skip = _function(found)
    if function is None:
        return _from_text(found)
    shown = [parameter.shown for parameter in _parameters(function, skip)]
    returns = entry(function.__annotations__, "return")
    arrow = "" if returns is MISSING else f" -> {_annotation(returns)}"
    return f"({', '.join(_with_signs(function, shown, skip))}){arrow}"


def parameters(found: Known) -> list[str]:
    """Return the names of the parameters that a call can pass by name."""
    function, skip = _function(found)
    if function is not None:
        return [parameter.name for parameter in _parameters(function, skip) if parameter.keyword]
    inner = _from_text(found).partition("(")[2].rpartition(")")[0]
    named = [part.strip() for part in re.split(r",(?![^\[(]*[\])])", inner)]
    after = named[named.index("/") + 1 :] if "/" in named else named
    return [part.partition("=")[0].partition(":")[0] for part in after if re.match(r"[A-Za-z_]\w*", part)]


def _function(found: Known) -> tuple[types.FunctionType | None, int]:
    """Return the Python function that a call runs, and how many of its parameters are already filled."""
    value, skip = found.value, int(found.bound)
    if type(value) is types.MethodType:
        value, skip = value.__func__, 1
    if value is MISSING:
        value, skip = class_entry(found.kind, "__call__"), 1
    elif is_class(value):
        value, skip = _constructor(value), 1
    elif not one_of(type(value), FUNCTIONS) and not library_callable(value):
        value, skip = class_entry(type(value), "__call__"), 1
    value = implementation(value)
    for _ in range(20):  # decorators name what they wrap
        inner = entry(value.__dict__, "__wrapped__") if type(value) is types.FunctionType else MISSING
        if type(inner) is not types.FunctionType:
            break
        value = inner
    return (value, skip) if type(value) is types.FunctionType else (None, skip)


def _constructor(cls: type) -> Any:
    made, new = class_entry(cls, "__init__"), class_entry(cls, "__new__")
    new = new.__func__ if type(new) is staticmethod else new
    return made if type(made) is types.FunctionType else new


def _parameters(function: types.FunctionType, skip: int) -> list[Parameter]:
    code = function.__code__
    positional, keywords = code.co_argcount, code.co_kwonlyargcount
    names, parameters = code.co_varnames, []
    defaults = function.__defaults__ or ()
    first = positional - len(defaults)
    for at, name in enumerate(names[:positional]):
        default = defaults[at - first] if at >= first else MISSING
        by_name = at >= code.co_posonlyargcount
        parameters.append(Parameter(name, _shown(function, name, default), by_name))
    if code.co_flags & inspect.CO_VARARGS:
        skip = min(skip, len(parameters))
        name = names[positional + keywords]
        parameters.append(Parameter(name, f"*{_shown(function, name, MISSING)}", keyword=False))
    for name in names[positional : positional + keywords]:
        default = entry(function.__kwdefaults__ or {}, name)
        parameters.append(Parameter(name, _shown(function, name, default), keyword=True))
    if code.co_flags & inspect.CO_VARKEYWORDS:
        name = names[positional + keywords + bool(code.co_flags & inspect.CO_VARARGS)]
        parameters.append(Parameter(name, f"**{_shown(function, name, MISSING)}", keyword=False))
    return parameters[skip:]


def _with_signs(function: types.FunctionType, shown: list[str], skip: int) -> list[str]:
    """Add ``/`` and ``*`` between positional and keyword parameters."""
    code, parts = function.__code__, list(shown)
    if code.co_kwonlyargcount and not code.co_flags & inspect.CO_VARARGS:
        parts.insert(max(0, code.co_argcount - skip), "*")
    if code.co_posonlyargcount > skip:
        parts.insert(code.co_posonlyargcount - skip, "/")
    return parts


def _shown(function: types.FunctionType, name: str, default: Any) -> str:
    annotation = entry(function.__annotations__, name)
    typed = "" if annotation is MISSING else f": {_annotation(annotation)}"
    if default is MISSING:
        return f"{name}{typed}"
    return f"{name}{typed}{' = ' if typed else '='}{plain_repr(default)}"


def _annotation(annotation: Any) -> str:
    if type(annotation) is str:
        return annotation
    if is_class(annotation):
        return name_of(annotation)
    if type(annotation) is types.UnionType:
        return " | ".join(_annotation(part) for part in annotation.__args__)
    if type(annotation) is types.GenericAlias:
        inner = ", ".join(_annotation(part) for part in annotation.__args__)
        return f"{_annotation(annotation.__origin__)}[{inner}]"
    return plain_repr(annotation)


def _from_text(found: Known) -> str:
    """Return the signature that a C function has as text, or in the first line of its documentation."""
    value = found.value
    if value is MISSING:
        return ""
    if type(value) is types.MethodType:
        value = value.__func__
    if is_class(value):
        text = _class_text(value)
        name = name_of(value)
    elif one_of(type(value), FUNCTIONS):
        text, name = value.__text_signature__, value.__name__
    else:
        text, name = None, ""
    if type(text) is str and text.startswith("("):
        return _SELF.sub("(", _SPACE.sub(" ", text).replace("( ", "(").replace(",)", ")").replace(", )", ")"))
    first = doc_of(value).strip().split("\n\n", maxsplit=1)[0]
    match = re.match(
        r"(?:[\w.]*\.)?" + (re.escape(name) if name else r"\w+") + r"(\(.*?\)(?: -> [^\n]*)?)\s*(?:\n|$)",
        first,
        re.DOTALL,
    )
    return _SPACE.sub(" ", match[1]) if match else ""


_type_text: Final[Any] = type.__dict__["__text_signature__"].__get__


def _class_text(cls: type) -> Any:
    return text_entry(dict_of(cls), "__text_signature__") or _type_text(cls)
