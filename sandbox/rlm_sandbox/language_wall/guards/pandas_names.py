"""Methods of pandas that read attributes by names in text: expressions, names of functions, templates."""

from __future__ import annotations

import ast
import re
import sys
import types
from collections.abc import Callable
from typing import Any, Final

from rlm_sandbox.language_wall.evaluation import without_plumbing
from rlm_sandbox.language_wall.function_origins import is_from
from rlm_sandbox.language_wall.guards.attributes import refuse, wash
from rlm_sandbox.language_wall.names import AttributeAccess, access
from rlm_sandbox.language_wall.registry import USER, cell_frame, is_class, mro_of

# -- names of functions


def naming_method(obj: Any, name: str) -> Any:
    """``df.agg("mean")``: pandas takes the attribute of that name, whatever it is."""
    real = wash(getattr(obj, name))
    if not is_from(real, "pandas"):
        return real
    place = (3 if name == "pivot_table" else 0) + (type(real) is not types.MethodType)

    def checked(*args: Any, **kwargs: Any) -> Any:
        named = name in ("agg", "aggregate") and len(args) <= place and "func" not in kwargs
        harmless = (
            {key: _function_names(value) for key, value in kwargs.items()} if named else harmless_keywords(kwargs)
        )
        return real(*harmless_arguments(args, place), **harmless)

    return checked


def harmless_arguments(args: tuple[Any, ...], place: int) -> tuple[Any, ...]:
    """Return the arguments, with a check of the function names in that position."""
    return tuple(_function_names(value) if index == place else value for index, value in enumerate(args))


def harmless_keywords(kwargs: dict[str, object]) -> dict[str, object]:
    """Return the keyword arguments, with a check of those that may name functions."""
    named = {"func", "aggfunc", "arg"}
    return {
        key: _function_names(value) if key in named or (isinstance(value, tuple) and key != "args") else value
        for key, value in kwargs.items()
    }


def _function_names(value: Any) -> Any:
    """Return an immutable copy of functions or their names, as pandas reads them, if the names are harmless."""
    if isinstance(value, str):
        name = str.__str__(value)
        if access(name) is not AttributeAccess.NATIVE or name.startswith("__"):
            refuse(name, "may not be named as a function in this session: pass the function itself")
        return name
    if is_class(value):
        return value
    if hasattr(value, "keys"):
        return {key: _function_names(value[key]) for key in list(value.keys())}
    if type(value) is tuple or (isinstance(value, tuple) and type(value) not in USER):
        for part in tuple.__iter__(value):
            _function_names(part)
        return value
    if hasattr(value, "__iter__"):
        return [_function_names(part) for part in value]
    return _called(value) if type(value) in USER else value


def _called(value: Any) -> Any:
    """Return a function that calls an object of the session, which could pose to pandas as a list of names."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return value(*args, **kwargs)

    call.__name__ = call.__qualname__ = type(value).__name__
    return call


# -- templates and expressions


def template(obj: Any, name: str) -> Any:
    """Return what leads to templates: Jinja's read any attribute, and pandas' Styler exposes its own."""
    value = wash(getattr(obj, name))
    if _is_of_jinja(value) or is_from(value, "pandas.io.formats.style"):
        refuse(name, "would run templates, which read any attribute: format the cells with a function of your own")
    return value


def evaluating_method(obj: Any, name: str) -> Any:
    """Return ``DataFrame.query`` or ``eval`` (also ``pandas.eval``), which evaluate text with access to attributes.

    The owner of the function matters: a subclass, ``super()`` and the class itself return pandas' own.
    """
    real = wash(getattr(obj, name))
    if not is_from(real, "pandas"):
        return real
    place = 0 if type(real) is types.MethodType else 1

    def evaluate(*args: Any, **kwargs: Any) -> Any:
        check_expression(kwargs["expr"] if "expr" in kwargs else args[place])
        return evaluate_pandas(real, args, kwargs, sys._getframe(1))

    return evaluate


def _is_of_jinja(value: Any) -> bool:
    environment = sys.modules.get("jinja2.environment")
    kinds = () if environment is None else (vars(environment)["Environment"], vars(environment)["Template"])
    return any(kind in mro_of(type(value)) for kind in kinds)


def evaluate_pandas(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, object], caller: types.FrameType
) -> Any:
    """Let pandas evaluate checked text with the variables of the calling code, and no other frame's."""
    if kwargs.pop("level", 0) != 0 or len(args) > _BEFORE_LEVEL:
        raise TypeError("level is not available in this session: pass the variables as local_dict")
    cell = cell_frame(caller)
    if kwargs.get("local_dict") is None:
        kwargs["local_dict"] = {} if cell is None else without_plumbing(cell.f_locals)
    if kwargs.get("global_dict") is None:
        kwargs["global_dict"] = {} if cell is None else without_plumbing(cell.f_globals)
    return function(*args, **kwargs)


_BEFORE_LEVEL: Final = 3
"""Maximum number of positional arguments: the expression, and parser and engine or what stands there."""


def check_expression(expression: Any) -> None:
    """Refuse a pandas or sympy expression that reads anything but harmless attributes and names.

    pandas evaluates each line by itself, and takes what is between backticks as the name of a column, but not inside
    text. What cannot be read here is refused: pandas might read it otherwise.
    """
    if type(expression) is not str:
        raise TypeError("the expression must be a str")
    for line in expression.splitlines():
        source = _without_column_names(line).replace("@", "").strip()
        try:
            tree = ast.parse(source or "0")
        except (SyntaxError, ValueError):
            raise SyntaxError(f"this expression cannot be read: {line.strip()!r}; write it as Python code") from None
        _check_tree(tree)


def _check_tree(tree: ast.AST) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and access(node.attr) is not AttributeAccess.NATIVE:
            refuse(node.attr)
        if isinstance(node, ast.Name) and node.id.startswith("__"):
            refuse(node.id)


def _without_column_names(line: str) -> str:
    """Return the line with each name in backticks made an ordinary one; text in quotes stays as it is."""
    return _QUOTED.sub(lambda found: "x" if found[0].startswith("`") else found[0], line)


_QUOTED: Final = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`""")
