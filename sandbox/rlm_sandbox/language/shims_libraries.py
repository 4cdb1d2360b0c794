"""Safe replacements for functions of data libraries that evaluate text or load arbitrary objects."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable
from typing import Any

from rlm_sandbox.language.guards_read import check_expression


def _load_array(file: Any, *args: Any, **kwargs: Any) -> Any:
    """``numpy.load`` without pickled objects."""
    if kwargs.get("allow_pickle") or (len(args) > 1 and args[1]):
        raise ValueError("allow_pickle is not available in this session: save arrays of numbers or text")
    return _call("numpy", "load", file, *args, **kwargs)


def _sliding_window_view(
    x: Any, window_shape: Any, axis: Any = None, *, subok: bool = False, writeable: bool = False
) -> Any:
    """``numpy.lib.stride_tricks.sliding_window_view`` that measures the array itself.

    The original believes what a subclass of ndarray says its shape and strides are, and what a subclass of int
    says when it is compared, and would then show raw memory: here the array is a plain one, the numbers plain.
    """
    if subok:
        raise TypeError("subok is not available in this session: the windows are a plain array")
    plain = _call("numpy", "array", x, copy=None, subok=False)
    axes = None if axis is None else _plain_numbers(axis)
    return _call(
        "numpy.lib.stride_tricks",
        "sliding_window_view",
        plain,
        _plain_numbers(window_shape),
        axes,
        writeable=bool(writeable),
    )


def _plain_numbers(numbers: Any) -> tuple[int, ...]:
    try:
        return (int(operator.index(numbers)),)
    except TypeError:
        return tuple(int(operator.index(number)) for number in numbers)


def _evaluate(expression: Any, *args: Any, **kwargs: Any) -> Any:
    """``pandas.eval`` of an expression that reads harmless names only."""
    check_expression(expression)
    kwargs["level"] = kwargs.get("level", 0) + 2  # this function and _call stand before the caller's variables
    return _call("pandas", "eval", expression, *args, **kwargs)


def _load_yaml(stream: Any, Loader: Any = None) -> Any:  # noqa: N803 - the name in yaml
    """``yaml.load``: always the safe loader."""
    return _call("yaml", "safe_load", stream)


def _sympify(value: Any, *args: Any, **kwargs: Any) -> Any:
    """``sympy.sympify`` of an expression that reads harmless names only."""
    if isinstance(value, str):
        check_expression(value)
    return _call("sympy", "sympify", value, *args, **kwargs)


def _lambdify(args: Any, expr: Any, *rest: Any, **kwargs: Any) -> Any:
    """``sympy.lambdify`` of an expression object."""
    if isinstance(expr, str):
        raise TypeError("lambdify takes an expression in this session: build it from symbols")
    return _call("sympy", "lambdify", args, expr, *rest, **kwargs)


def _call(module: str, name: str, /, *args: Any, **kwargs: Any) -> Any:
    return getattr(importlib.import_module(module), name)(*args, **kwargs)


def library_shims() -> dict[str, Callable[..., Any]]:
    """The replacements, by the full name of what they replace."""
    return {
        "numpy.load": _load_array,
        "numpy.lib.stride_tricks.sliding_window_view": _sliding_window_view,
        "pandas.eval": _evaluate,
        "yaml.load": _load_yaml,
        "sympy.sympify": _sympify,
        "sympy.lambdify": _lambdify,
    }
