"""Safe replacements for functions of data libraries that evaluate text or load arbitrary objects."""

from __future__ import annotations

import functools
import importlib
import operator
import struct
import sys
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from rlm_sandbox.language_wall.evaluation import without_plumbing
from rlm_sandbox.language_wall.guards.buffers import refuse_descriptors, refuse_forged_files, refuse_objects
from rlm_sandbox.language_wall.guards.class_checks import UNSUBCLASSABLE
from rlm_sandbox.language_wall.guards.pandas_names import (
    check_expression,
    evaluate_pandas,
    harmless_arguments,
    harmless_keywords,
)
from rlm_sandbox.language_wall.modules.attribute_names import harden_estimators, harden_formats, named_shims
from rlm_sandbox.language_wall.modules.attribute_reads import harden_reads
from rlm_sandbox.language_wall.modules.buffered_files import harden_buffered
from rlm_sandbox.language_wall.modules.cython_methods import harden_methods
from rlm_sandbox.language_wall.modules.imports_by_name import harden_imports
from rlm_sandbox.language_wall.modules.namespace_reads import harden_namespaces
from rlm_sandbox.language_wall.modules.tables import KEEP_MODULES
from rlm_sandbox.language_wall.modules.wall_in_force import IN_FORCE
from rlm_sandbox.language_wall.registry import cell_frame, is_user_frame, mro_of


def _load_array(file: Any, mmap_mode: Any = None, allow_pickle: Any = False, *args: Any, **kwargs: Any) -> Any:
    """``numpy.load`` without pickled objects, and without a map of the file: the class of maps takes any descriptor."""
    refuse_forged_files(file)
    if allow_pickle:
        raise ValueError("allow_pickle is not available in this session: save arrays of numbers or text")
    if mmap_mode not in {None, "r", "c"}:
        raise ValueError("mmap_mode can be 'r' or 'c' in this session: save the array that you have changed")
    loaded = _call("numpy", "load", file, None, False, *args, **kwargs)
    if mmap_mode == "r" and type(loaded) is sys.modules["numpy"].__dict__["ndarray"]:
        loaded.setflags(write=False)
    return loaded


def _save_array(file: Any, *args: Any, **kwargs: Any) -> None:
    """``numpy.save`` to a path or a file."""
    refuse_forged_files(file)
    _call("numpy", "save", file, *args, **kwargs)


def _arrow_buffer(obj: Any) -> Any:
    """``pyarrow.py_buffer`` of bytes; not of the references that an array holds."""
    refuse_objects(obj)
    return _call("pyarrow", "py_buffer", obj)


def _from_buffer(buffer: Any, *args: Any, **kwargs: Any) -> Any:
    """``numpy.frombuffer`` of bytes; not of the references that an array holds."""
    refuse_objects(buffer)
    return _call("numpy", "frombuffer", buffer, *args, **kwargs)


def _from_file(file: Any, *args: Any, **kwargs: Any) -> Any:
    """``numpy.fromfile`` of a path or of a file that ``open`` has made."""
    refuse_descriptors(file)
    return _call("numpy", "fromfile", file, *args, **kwargs)


def _records_from_file(
    fd: Any,
    dtype: Any = None,
    shape: Any = None,
    offset: Any = 0,
    formats: Any = None,
    names: Any = None,
    titles: Any = None,
    aligned: bool = False,
    byteorder: Any = None,
) -> Any:
    """``numpy.rec.fromfile`` of numbers and text: it reads the file into the memory of the array."""
    if dtype is None:
        made = _call("numpy.rec", "format_parser", formats, names, titles, aligned, byteorder).dtype
    else:
        made = _call("numpy", "dtype", dtype)
    if made.hasobject:
        raise TypeError("an array of objects cannot be read from a file in this session: use numbers and text")
    return _call("numpy.rec", "fromfile", fd, made, shape, offset)


def _pack_into(*args: Any) -> None:
    """``struct.pack_into``; not over the references that an array holds."""
    refuse_objects(*args)
    struct.pack_into(*args)


def _evaluate(expression: Any, *args: Any, **kwargs: Any) -> Any:
    """``pandas.eval`` of an expression that reads harmless names only."""
    check_expression(expression)
    pandas = importlib.import_module("pandas")
    return evaluate_pandas(pandas.eval, (expression, *args), kwargs, sys._getframe(1))


def _pivot(data: Any, *args: Any, **kwargs: Any) -> Any:
    """``pandas.pivot_table``, whose functions may be named in text."""
    return _call("pandas", "pivot_table", data, *harmless_arguments(args, 3), **harmless_keywords(kwargs))


def _cross(index: Any, *args: Any, **kwargs: Any) -> Any:
    """``pandas.crosstab``, whose function may be named in text."""
    return _call("pandas", "crosstab", index, *harmless_arguments(args, 4), **harmless_keywords(kwargs))


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


_BACKENDS = frozenset({"agg", "inline", "module://matplotlib_inline.backend_inline"})


def _use(backend: Any, *, force: bool = True) -> None:
    """``matplotlib.use``: figures are pictures already, and other backends open windows or load modules by name."""
    if not isinstance(backend, str) or str.__str__(backend).lower() not in _BACKENDS:
        raise ValueError("this session shows figures as pictures and has no other backend: leave this call out")


def _switch_backend(newbackend: Any) -> None:
    """``matplotlib.pyplot.switch_backend``, as `_use`."""
    _use(newbackend)


def _call(module: str, name: str, /, *args: Any, **kwargs: Any) -> Any:
    return getattr(importlib.import_module(module), name)(*args, **kwargs)


def harden_libraries() -> None:
    """Change in place what no copy of a module can hold back, in the libraries that have been imported."""
    harden_buffered()
    harden_methods()
    harden_reads()
    harden_imports()
    harden_namespaces()
    harden_formats()
    harden_estimators()
    _harden_keepers()
    if "numpy" in sys.modules:
        from rlm_sandbox.language_wall.modules.numpy_memory import harden_numpy

        harden_numpy()
    if "patsy.eval" in sys.modules:
        environment = sys.modules["patsy.eval"].__dict__["EvalEnvironment"]
        environment.capture = classmethod(_capture)
        environment.eval = _evaluate_formula


def _freeze_graph(graph: Any) -> Any:
    """``networkx.freeze``, which stores on whatever it is given: on a graph."""
    if sys.modules["networkx"].__dict__["Graph"] not in mro_of(type(graph)):
        raise TypeError("freeze needs a graph in this session")
    return _call("networkx", "freeze", graph)


def _harden_keepers() -> None:
    for name in KEEP_MODULES:
        module, _, attribute = name.rpartition(".")
        if module in sys.modules and (cls := getattr(sys.modules[module], attribute)) not in UNSUBCLASSABLE:
            UNSUBCLASSABLE.append(cls)
            cls.__init__ = _own_init(cls, cls.__init__)


def _own_init(cls: type, real: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(real)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if type(self) is not cls:
            raise TypeError(f"{cls.__name__}.__init__ needs an object of that class in this session")
        real(self, *args, **kwargs)

    del init.__wrapped__
    return init


def _capture(cls: Any, eval_env: Any = 0, reference: int = 0) -> Any:
    """``patsy.EvalEnvironment.capture``: the variables of the session's own code, of no other frame."""
    if isinstance(eval_env, cls):
        return eval_env
    frame = sys._getframe(1)
    for _ in range(operator.index(eval_env) + reference):
        frame = frame.f_back or frame
    while frame.f_back is not None and not is_user_frame(frame):
        frame = frame.f_back
    cell = cell_frame(frame)
    return cls([{}] if cell is None else [without_plumbing(cell.f_locals), without_plumbing(cell.f_globals)])


def _evaluate_formula(
    environment: Any, expr: Any, source_name: str = "<string>", inner_namespace: Any = MappingProxyType({})
) -> Any:
    """``patsy.EvalEnvironment.eval``: a formula is Python, and follows the rules of a cell."""
    patsy = sys.modules["patsy.eval"].__dict__
    if not any(base is patsy["EvalEnvironment"] for base in mro_of(type(environment))):
        raise TypeError("a formula is evaluated in an EvalEnvironment of patsy")  # its private parts are read
    names = patsy["VarLookupDict"]([inner_namespace, *environment._namespaces])
    return IN_FORCE.evaluate(str.__str__(expr), names)


@functools.cache
def library_shims() -> dict[str, Callable[..., Any]]:
    """The replacements, by the full name of what they replace."""
    table: dict[str, Callable[..., Any]] = {
        "numpy.load": _load_array,
        "numpy.save": _save_array,
        "networkx.freeze": _freeze_graph,
        "networkx.classes.function.freeze": _freeze_graph,
        "numpy.frombuffer": _from_buffer,
        "numpy.fromfile": _from_file,
        "numpy.rec.fromfile": _records_from_file,
        "struct.pack_into": _pack_into,
        "pandas.eval": _evaluate,
        "pandas.pivot_table": _pivot,
        "pandas.crosstab": _cross,
        "pyarrow.py_buffer": _arrow_buffer,
        "matplotlib.use": _use,
        "matplotlib.pyplot.switch_backend": _switch_backend,
        "yaml.load": _load_yaml,
        "sympy.sympify": _sympify,
        "sympy.lambdify": _lambdify,
    }
    for full, replacement in table.items():
        module, _, name = full.rpartition(".")
        replacement.__name__, replacement.__qualname__, replacement.__module__ = name, name, module
    return table | named_shims()
