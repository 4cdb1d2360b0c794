"""Definitions of the standard library that the session's own compiler has compiled, as any cell of the session.

What a decorator or a context manager of the library does to objects of the session, it does by the session's rules:
each attribute that it reads or stores is guarded, and the builtins that it calls are the guarded ones. A mistake in
one of them is no way out. The source is the library's, from its own file; what it needs beyond (`_GIVEN`) is named.

Their namespace is out of the session's reach, but nothing in it would harm: a library that looks for the variables of
its caller may find it. So are the methods compiled that `dataclasses` writes for a class of the session: they read and
store its fields on whatever they are called with.

Classes that libraries recognise keep their identity and are not compiled again:
`abc.ABC`, the abstract classes of contextlib, `enum.Enum`, the classes of collections, `functools.partialmethod` (which
`inspect.signature` asks for) and `functools.cached_property` (which stores into the object itself).
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib.machinery
import sys
import types
import weakref
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from rlm_sandbox.language_wall import _core
from rlm_sandbox.language_wall.audit_hook import is_armed
from rlm_sandbox.language_wall.compiler import compile_guarded
from rlm_sandbox.language_wall.guards.attributes import refuse
from rlm_sandbox.language_wall.modules.copies import ModuleSet
from rlm_sandbox.language_wall.modules.imports import GuardedImport
from rlm_sandbox.language_wall.modules.tables import UNUSED
from rlm_sandbox.language_wall.registry import CLEAN, HIDDEN, USER, add_library_code, is_class, is_user_function
from rlm_sandbox.namespaces import Namespace

_DEFINITIONS: Final[dict[str, str]] = {
    "operator": "attrgetter methodcaller",
    "functools": """
        WRAPPER_ASSIGNMENTS WRAPPER_UPDATES update_wrapper wraps total_ordering singledispatch lru_cache cache
        _gt_from_lt _le_from_lt _ge_from_lt _ge_from_le _lt_from_le _gt_from_le _lt_from_gt _ge_from_gt _le_from_gt
        _le_from_ge _gt_from_ge _lt_from_ge _convert
    """,
    "contextlib": """
        ContextDecorator AsyncContextDecorator _GeneratorContextManagerBase _GeneratorContextManager
        _AsyncGeneratorContextManager contextmanager asynccontextmanager closing aclosing _RedirectStream
        redirect_stdout redirect_stderr suppress _BaseExitStack ExitStack AsyncExitStack nullcontext
    """,
    "typing": "_overload_dummy overload final override dataclass_transform",
    "abc": "abstractmethod",
    "weakref": "WeakMethod",
}
"""What is compiled, by module."""

_GIVEN: Final[dict[str, str]] = {
    "operator": "",
    # `_find_impl` asks classes for their subclasses, which no session may; it returns what was registered.
    "functools": "partial GenericAlias RLock get_cache_token _CacheInfo _lru_cache_wrapper _find_impl",
    "contextlib": "abc deque MethodType GenericAlias AbstractContextManager AbstractAsyncContextManager",
    "typing": "",
    "abc": "",
    "weakref": "ref",
}
"""What they find in their module, and is not compiled: functions in C, classes, plain values."""

_IMPORTS: Final = ("sys", "types", "typing", "weakref")
_MARKS: Final = frozenset(
    "__wrapped__ __isabstractmethod__ __final__ __no_type_check__ __override__ __dataclass_transform__".split()
)
_WRAPPERS: Final = frozenset(
    {functools.partial, staticmethod, classmethod, functools.cached_property, vars(functools)["_lru_cache_wrapper"]}
)

_OWN: Final = '''
def update_entries(wrapper, attribute, entries):
    if attribute != "__dict__":
        return getattr(wrapper, attribute).update(entries)
    for name, value in entries.items():
        try:
            mark(wrapper, name, value) if name in MARKS else setattr(wrapper, name, value)
        except AttributeError:  # it may not have such an attribute
            continue

def no_type_check(arg):
    """Mark a function or class as having no annotations that are types."""
    mark(arg, "__no_type_check__", True)
    return arg

class finalize:
    """Call a function when an object is gone, unless this is called or detached before.

    The end of a session runs none of them, whatever `atexit` says.
    """

    __module__ = "weakref"
    _pending = {}

    def __init__(self, obj, func, /, *args, **kwargs):
        self.atexit = True
        self._pending[self] = ref(obj, lambda _: self()), func, args, kwargs

    def __call__(self, _=None):
        """Call the function and return what it returns; None if that was done before."""
        _, func, args, kwargs = self._pending.pop(self, (None, None, (), {}))
        return func and func(*args, **kwargs)

    def peek(self):
        """Return the object, the function and its arguments while they are alive."""
        found = self._pending.get(self)
        obj = found and found[0]()
        return None if obj is None else (obj, *found[1:])

    def detach(self):
        """Return what `peek` returns, and call nothing later."""
        found = self.peek()
        if found is not None and self._pending.pop(self, None):
            return found

    @property
    def alive(self):
        """Whether the function is still to be called."""
        return self in self._pending

class Stream:
    """Takes the place of a stream of the session's: whatever calls its methods does so as code of the session."""

    def __init__(self, target):
        self.target = target

    def __getattr__(self, name):
        value = getattr(self.target, name)
        return (lambda *args, **keywords: value(*args, **keywords)) if callable(value) else value
'''
"""Compiled by the same compiler: what the library does in a way that the rules do not allow."""


def mark(owner: Any, name: str, value: Any) -> None:
    """Store an attribute that a session may not store, on an object of the session's own."""
    cls = type(owner)
    own = is_user_function(owner) or cls in CLEAN or (is_class(owner) and owner in USER) or cls in _WRAPPERS
    if not own or type(name) is not str or name not in _MARKS:
        refuse(str(name), "can only be set on an object of your own: wrap it in a function")
    setattr(owner, name, value)


class _Adaptation(ast.NodeTransformer):
    """The few statements of the library that the rules refuse, written in a way that they allow."""

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """``f.__wrapped__ = g`` is ``mark(f, "__wrapped__", g)``."""
        self.generic_visit(node)
        target = node.targets[0]
        if not isinstance(target, ast.Attribute) or target.attr not in _MARKS:
            return node
        target.value.ctx = ast.Load()  # type: ignore[attr-defined]
        return _placed(ast.Expr(_call("mark", [target.value, ast.Constant(target.attr), node.value])), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """``getattr(wrapper, "__dict__").update(...)`` would change a copy."""
        self.generic_visit(node)
        match node:
            case ast.Call(ast.Attribute(ast.Call(ast.Name("getattr"), [owner, name]), "update"), [entries], []):
                return _placed(_call("update_entries", [owner, name, entries]), node)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Annotations name much that no definition needs."""
        for argument in ast.walk(node.args):
            if isinstance(argument, ast.arg):
                argument.annotation = None
        node.returns = None
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """No class of a session says how it is pickled."""
        node.body = [item for item in node.body if not (isinstance(item, ast.FunctionDef) and item.name in _PICKLING)]
        self.generic_visit(node)
        return node


_PICKLING: Final = ("__reduce__", "__reduce_ex__")


def _placed(made: ast.AST, instead: ast.AST) -> ast.AST:
    """What takes the place of a part of the source, with its line."""
    return ast.fix_missing_locations(ast.copy_location(made, instead))


def _call(function: str, arguments: list[ast.expr]) -> ast.Call:
    return ast.Call(ast.Name(function, ast.Load()), arguments, [])


class Recompiled:
    """The definitions, made once per process and shared by every kernel forked from it."""

    def __init__(self, guards: Mapping[str, Any], builtins: Mapping[str, Any]) -> None:
        """``guards`` of the compiler; ``builtins``: the guarded ones, whatever a policy blocks."""
        # Before the first module is copied: from then on, `ast` reads attributes by the session's rules, which is slow.
        own_tree = _adapted(ast.parse(_OWN))
        sources = [(module, *_source(module, frozenset(names.split()))) for module, names in _DEFINITIONS.items()]
        self._imports = ModuleSet(_IMPORTS)
        importing = GuardedImport(self._imports)
        self._guards = {**guards, "IMPORT": importing.call}
        self._builtins = {**builtins, "__import__": importing.statement}
        _core.add_session(self._builtins)
        own = self._namespace("functools", {"mark": mark, "MARKS": _MARKS, "ref": weakref.ref})
        self._execute(own_tree, __file__, own)
        self._helpers = {name: own[name] for name in ("mark", "update_entries")}
        self.table: dict[str, object] = {
            "typing.no_type_check": own["no_type_check"],
            "weakref.finalize": own["finalize"],
        }
        _core.admit(HIDDEN, weakref.finalize)  # it keeps its state in the class, for everybody
        _core.admit(HIDDEN, weakref.WeakMethod)  # as a reference it gives the object of any method
        self.stream: type = own["Stream"]
        self._define_all(sources)
        vars(dataclasses)["exec"] = self._write_methods

    def _write_methods(self, text: str, namespace: Any, found: Any) -> None:
        """``exec`` for `dataclasses`; what it needs of its namespace is builtins."""
        if not _is_for_session(sys._getframe(1)):
            exec(compile(text, "<string>", "exec", dont_inherit=True), namespace, found)
            return
        code = compile_guarded(text, "<string>", "exec", 0, self._guards)
        exec(code, {"__name__": namespace.get("__name__"), "__builtins__": self._builtins}, found)

    def _define_all(self, sources: Iterable[tuple[str, ast.Module, str]]) -> None:
        made: dict[str, object] = {}
        for module, tree, filename in sources:
            namespace = self._namespace(module, self._helpers | made)
            self._execute(tree, filename, namespace)
            found = {name: namespace[name] for name in _DEFINITIONS[module].split() if name in namespace}
            public = {f"{module}.{name}": value for name, value in found.items() if not name.startswith("_")}
            self.table |= {full: value for full, value in public.items() if full not in UNUSED}
            made |= {name: found[name] for name in ("wraps",) if name in found}

    def _namespace(self, module: str, values: Mapping[str, Any]) -> Namespace:
        real = vars(importlib.import_module(module))
        given = {name: real[name] for name in _GIVEN[module].split()}
        known = {
            "sys": self._imports.copy_of("sys"),
            "types": self._imports.copy_of("types"),
            "defaultdict": defaultdict,
        }
        registry: dict[str, object] = {"_overload_registry": defaultdict(functools.partial(defaultdict, dict))}
        return {**known, **registry, **given, **values, "__name__": module, "__builtins__": self._builtins}

    def _execute(self, tree: ast.Module, filename: str, namespace: Namespace) -> None:
        code = compile_guarded(tree, filename, "exec", 0, self._guards)
        add_library_code(code)
        exec(code, namespace)


def _is_for_session(frame: types.FrameType | None) -> bool:
    """Whether `dataclasses` writes the methods of a class that is the session's, or is about to be."""
    while frame is not None and frame.f_code is not _PROCESS_CLASS:
        frame = frame.f_back
    return is_armed() or (frame is not None and frame.f_locals["cls"] in USER)


_PROCESS_CLASS: Final = vars(dataclasses)["_process_class"].__code__


def _source(module: str, wanted: Iterable[str]) -> tuple[ast.Module, str]:
    """The wanted definitions of a module's source, adapted and in their order, and its file."""
    spec = importlib.machinery.PathFinder.find_spec(module)  # also of what CPython keeps frozen
    loader: Any = None if spec is None else spec.loader
    text = None if loader is None else loader.get_source(module)
    if text is None or spec is None or spec.origin is None:
        raise RuntimeError(
            f"the source of module '{module}' is not installed: install a Python with its library's source"
        )
    tree = ast.parse(text)
    tree.body = [node for node in tree.body if not _names_of(node).isdisjoint(wanted)]
    return _adapted(tree), spec.origin


def _adapted(tree: ast.Module) -> ast.Module:
    adapted: ast.Module = _Adaptation().visit(tree)
    return adapted


def _names_of(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    return set()
