"""The judgement, outside of the wall: what no session may hold, and what no step may change."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import os
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import crawl_adapter as adapter

_INTERPRETER: Final = {
    types.FrameType: "a frame",
    types.CodeType: "a code object",
    types.CellType: "a cell",
    contextvars.Context: "a context",
}
_RAW_METHODS: Final = (
    *(object.__getattribute__, type.__getattribute__, object.__setattr__, type.__setattr__, object.__delattr__),
    *(type.__subclasses__, super.__getattribute__, object.__reduce_ex__, object.__reduce__),
)
_SECRET_OWNERS: Final = (types.FunctionType, types.FrameType, types.CodeType, types.GeneratorType, type)
_HARMLESS_SLOTS: Final = frozenset({"gi_running", "gi_suspended", "__annotations__", "__type_params__", "__doc__"})
"""Their values are no secret, and a session may neither read another object by one (`__get__`) nor store by it."""
_HANDED_OUT: Final = frozenset({"_default_handler_map", "_style_list"})
"""Dicts of matplotlib's classes that its own public methods give and change: what handles a legend's entry, and which
styles there are. What they hold is called to draw the session's figures, with the hook armed, and by nothing else."""
_ATOMS: Final = (int, float, complex, str, bytes, bool, type(None), type(...), type(NotImplemented), bytearray)
_DESCRIPTORS: Final = (types.MemberDescriptorType, types.GetSetDescriptorType)


@dataclass(frozen=True)
class Finding:
    """Something that a session must not have or do."""

    kind: str
    what: str
    origin: str
    """The operation and the callable of the step."""
    script: tuple[str, ...]
    """Lines of the session that led there."""
    step: int = 0
    """How many steps its batch had taken."""

    @property
    def signature(self) -> str:
        """What makes two findings the same."""
        return f"{self.kind} | {self.origin}"


class Judge:
    """Knows every object of the libraries and of the wall as they were before the session's first step.

    ``originals``: ``held`` counts a raw builtin as a finding where it is held; ``harmless`` lets the session attack
    with it, and counts what succeeds.
    """

    def __init__(self, originals: str, session: Any, functions: dict[int, Any]) -> None:
        self.mode = originals
        self._functions = functions
        """Those that were there when the libraries had been imported, by id; guards make others at each read."""
        self.session = session
        given = _given(session)
        self._originals = adapter.originals(given)
        self._own_classes = adapter.own_classes(given)
        self._own_functions = adapter.own_functions(given)
        self.classes: list[type] = []
        self._live: dict[int, tuple[str, Any]] = {}
        """Namespaces by id; each is held here, so that no other dict gets its id."""
        self._hold("the session's builtins", session.wall.builtins)
        self._hold("the session's own globals", session.namespace)
        self._shown: set[int] = set()
        """Those that libraries show by a mapping proxy, which nobody can change."""
        self._library_classes: set[int] = set()
        self._function_state: dict[int, Any] = {}
        """What libraries keep on their functions under private names, by id."""
        self._learn(gc.get_objects())
        self._baseline = list(self._namespaces())
        self._attacks = _attacks(session)

    # -- learning

    def _hold(self, name: str, namespace: Any) -> None:
        self._live[id(namespace)] = name, namespace

    def _learn(self, objects: list[Any]) -> None:
        mine = {id(vars(sys.modules[name])) for name in list(sys.modules) if name.startswith("crawl")}
        for value in objects:
            kind = type(value)
            if issubclass(kind, type):
                if not adapter.is_session_class(value):
                    self.classes.append(value)
                    self._library_classes.add(id(value))
                    namespace = adapter.live_namespace(value)
                    self._hold(f"namespace of class {value.__name__}", namespace)
                    given = {id(inner) for name, inner in namespace.items() if not adapter.is_private(name)}
                    for name, inner in list(namespace.items()):
                        if type(inner) is dict and id(inner) not in given and name not in _HANDED_OUT:
                            self._hold(f"{value.__name__}.{name}", inner)
                            self._shown.add(id(inner))
            elif kind is types.FunctionType:
                if not adapter.is_session_function(value):
                    private = (inner for name, inner in value.__dict__.items() if adapter.is_private(name))
                    self._function_state.update((id(inner), inner) for inner in private if type(inner) not in _ATOMS)
            elif kind is types.ModuleType:
                if not adapter.is_copy(value):
                    self._hold(f"namespace of module {value.__name__}", vars(value))
            elif (
                not adapter.is_session_class(kind)
                and adapter.dict_of(kind) is not None
                and not issubclass(kind, types.SimpleNamespace)
            ):
                found = _dict_within(value)
                if found is not None and id(found) not in mine and kind.__name__ != "Namespace":
                    self._hold(f"namespace of an object of {kind.__name__}", found)

    # -- one value

    def of(self, value: Any) -> tuple[str, str] | None:
        """The kind and the name of what a session must not hold."""
        kind = type(value)
        if kind in _ATOMS:
            return None
        if kind in _INTERPRETER:
            return "interpreter", _INTERPRETER[kind]
        if issubclass(kind, types.ModuleType):
            return None if adapter.is_copy(value) or _is_blank(value) else ("module", value.__name__)
        if issubclass(kind, asyncio.AbstractEventLoop):
            return "event loop", kind.__name__
        if raw := adapter.raw_builtin(value):
            return self._raw(raw, value)
        if issubclass(kind, type):
            return self._of_class(value)
        if kind is dict or kind is types.MappingProxyType:
            return self._of_dict(value)
        return self._of_object(value)

    def _of_object(self, value: Any) -> tuple[str, str] | None:
        kind = type(value)
        if id(value) in self._originals:
            return "original", self._originals[id(value)]
        if id(value) in self._own_functions:
            return "ours", self._own_functions[id(value)]
        if id(kind) in self._own_classes:
            return "ours", f"an object of {self._own_classes[id(kind)]}"
        if kind in _DESCRIPTORS and value.__objclass__ in _SECRET_OWNERS and value.__name__ not in _HARMLESS_SLOTS:
            return "raw slot", f"{value.__objclass__.__name__}.{value.__name__}"
        if value is type.__call__:
            return self._raw("type.__call__", value)
        if any(value is raw for raw in _RAW_METHODS):
            return "raw slot", value.__qualname__
        if kind is memoryview and _is_of_nothing(value):
            return "raw memory", "a view of memory that no object holds"
        return None

    def _of_class(self, value: Any) -> tuple[str, str] | None:
        if adapter.is_raw_metaclass(value):
            return self._raw("type", value)
        if id(value) in self._originals:
            return "original", self._originals[id(value)]
        if id(value) in self._own_classes:
            return "ours", f"class {self._own_classes[id(value)]}"
        known = id(value) in self._library_classes or adapter.is_session_class(value)
        if not known and (name := adapter.unchecked(value)):
            return "unchecked class", f"one that has {name}"
        return None

    def _of_dict(self, value: Any) -> tuple[str, str] | None:
        inner = gc.get_referents(value)[0] if type(value) is types.MappingProxyType else value
        if id(inner) in self._live and (inner is value or id(inner) not in self._shown):
            return "live namespace", self._live[id(inner)][0]
        if type(inner) is dict and _is_builtins(inner.get("__builtins__")):
            return "live namespace", "a namespace with builtins"
        return None

    def _raw(self, name: str, value: Any) -> tuple[str, str] | None:
        kind, what = ("raw builtin", name) if name != "type" or value is type else ("raw metaclass", value.__name__)
        if self.mode == "held":
            return kind, what
        for attack in self._attacks.get(name, ()):
            try:
                got = self.session.run(attack, value)
            except BaseException:
                continue
            if got is not False:
                return kind, f"{what} does the session's bidding"
        return None

    # -- what a step changed

    def poisoned_classes(self) -> list[str]:
        """Library classes that the wall has come to take for the session's own."""
        found = list(filter(adapter.is_session_class, self.classes))
        for cls in found:
            adapter.forget_class(cls)
        return [f"class {cls.__name__}" for cls in found]

    def is_library_class(self, value: Any) -> bool:
        """Whether a class was there before the session."""
        return id(value) in self._library_classes

    def _namespaces(self) -> Iterator[tuple[str, bool, dict[str, Any], dict[str, int]]]:
        own = set()
        for name, namespace in adapter.own_namespaces():
            own.add(id(namespace))
            yield name, True, namespace, _state(namespace)
        for cls in self.classes:
            namespace = adapter.live_namespace(cls)
            if id(namespace) not in own and not str(cls.__module__).startswith("crawl"):
                yield f"class {cls.__module__}.{cls.__name__}", False, namespace, _state(namespace)
        for module in list(sys.modules.values()):
            if id(vars(module)) not in own and not module.__name__.startswith(("crawl", "__main__")):
                yield f"module {module.__name__}", False, vars(module), _state(vars(module))

    def changes(self) -> Iterator[tuple[str, str]]:
        """What differs in the namespaces of the wall, and what the session put into those of libraries."""
        for name, ours, namespace, before in self._baseline:
            if len(namespace) == len(before) and all(before.get(k) == id(v) for k, v in namespace.items()):
                continue
            for key, value in list(namespace.items()):
                if before.get(key) != id(value) and (_may_not_change(name, key) if ours else self.is_tied(value)):
                    kind, _, full = name.partition(" ")
                    known = not ours and kind == "class" and adapter.is_open_package(full)
                    yield "known poison" if known else "poison", f"{name}: {key}"

    def is_state(self, value: Any) -> bool:
        """Whether a library keeps this very object on one of its functions, under a private name."""
        return id(value) in self._function_state

    def was_there(self, function: Any) -> bool:
        """Whether others than the session may call a function: it is a library's or the wall's, and not made anew."""
        return id(function) in self._functions

    def is_tied(self, value: Any) -> bool:
        """Whether a value is of the session's making."""
        kind = type(value)
        if kind is functools.partial or kind is types.MethodType:
            return self.is_tied(value.func if kind is functools.partial else value.__func__)
        if kind is types.FunctionType:
            return adapter.is_session_function(value)
        return adapter.is_session_class(kind) or (issubclass(kind, type) and adapter.is_session_class(value))


def _is_blank(module: types.ModuleType) -> bool:
    """Whether a module holds nothing: the class of modules makes such, which take no stores and lead nowhere.

    Its name and documentation are whatever the session passed. Its annotations are there once they have been read.
    """
    given = ("__name__", "__doc__", "__annotations__")
    return all(value is None for name, value in vars(module).items() if name not in given)


def _is_of_nothing(view: memoryview) -> bool:
    try:
        return view.obj is None
    except ValueError:  # it has been released
        return False


def _may_not_change(owner: str, key: str) -> bool:
    # CPython and abc keep some things in classes by themselves.
    return adapter.is_steady(owner, key) and key not in (
        "__warningregistry__",
        "__annotations__",
        "_abc_impl",
        "__doc__",
    )


def _state(namespace: dict[str, Any]) -> dict[str, int]:
    return {key: id(value) for key, value in list(namespace.items())}


def _given(session: Any) -> set[int]:
    found = {id(value) for value in session.wall.builtins.values()}
    for copy in adapter.copies(session.wall.policy).values():
        found.update(map(id, vars(copy).values()))
    return found


def _dict_within(value: Any) -> Any:
    """The ``__dict__`` of an object that has one already."""
    inner = [found for found in gc.get_referents(value) if type(found) is dict]
    if not inner:
        return None
    try:
        namespace = object.__getattribute__(value, "__dict__")
    except Exception:
        return None
    return namespace if any(namespace is found for found in inner) else None


def snapshot(value: Any, judge: Judge) -> dict[str, Any] | None:
    """The state of a library's class or function before a step."""
    namespace = _namespace(value, judge)
    return None if namespace is None else dict(namespace)


def _namespace(value: Any, judge: Judge) -> dict[str, Any] | None:
    if issubclass(type(value), type):
        return None if adapter.is_session_class(value) else adapter.live_namespace(value)
    if type(value) is types.FunctionType and judge.was_there(value) and not adapter.is_session_function(value):
        return value.__dict__
    return None


# What the interpreter and libraries keep in classes and functions by themselves.
_KEPT_BY_ITSELF: Final = frozenset(
    """
    __abstractmethods__ __annotations__ __doc__ __annotations_cache__ __parameters__ __protocol_attrs__ _abc_impl
    __non_callable_proto_members__ __static_attributes__ __dict__ __weakref__ __signature__ __hash__
    """.split()
)


def _keeps_itself(owner: Any, key: str) -> bool:
    if type(owner) is types.FunctionType and key in owner.__code__.co_names:
        return True  # a cache of the function's own, as `dateutil.zoneinfo.get_zonefile_instance` has
    return key in _KEPT_BY_ITSELF or key.startswith("__abstract")


def differences(owner: Any, before: dict[str, Any], judge: Judge) -> list[str]:
    """The names that a step set or deleted in a library's class or function; puts back what was there."""
    now = _namespace(owner, judge)
    if now is None or (len(now) == len(before) and all(before.get(key, now) is value for key, value in now.items())):
        return []
    changed = [key for key in now.keys() | before.keys() if now.get(key, judge) is not before.get(key, judge)]
    found = [str(key) for key in changed if judge.is_tied(now.get(key)) or not _keeps_itself(owner, str(key))]
    for key in changed:
        _put_back(owner, key, before)
    return sorted(found)


def _put_back(owner: Any, key: str, before: dict[str, Any]) -> None:
    store, delete = (
        (type.__setattr__, type.__delattr__) if isinstance(owner, type) else (object.__setattr__, object.__delattr__)
    )
    try:
        if key in before:
            store(owner, key, before[key])
        else:
            delete(owner, key)
    except Exception:
        return


# -- attacks with an original


_POOL: Final = "import concurrent.futures\nreturn concurrent.futures.ThreadPoolExecutor(1)"
"""A library's function that calls what it is given, in a thread where no frame is the session's."""
_CHAIN: Final = "import collections\nreturn collections.ChainMap.new_child"
"""A library's function that calls the class of what it is given, in code that compiles text elsewhere."""


def _attacks(session: Any) -> dict[str, list[Any]]:
    texts = {
        "type": (
            "return X('T', (object,), {'__reduce_ex__': last}) is not None",
            "M = X('M', (X,), {'__eq__': last, '__hash__': lambda s: 1})\nreturn M is not None",
            "return X.__new__(X, 'T', (object,), {'__reduce_ex__': last}) is not None",
            "class T(X):\n    def __eq__(s, o):\n        return last(s, o)\nreturn T is not None",
            "T = X('T', (type(note),), {})\nreturn T is not None",
            f"{_CHAIN}(Lends(X, [(object,), {{'__reduce_ex__': last}}]), 'T') is not None",
            f"{_POOL}.submit(X, 'T', (object,), {{'__reduce_ex__': last}}).result() is not None",
        ),
        "getattr": (
            "return X(note, '__globals__')",
            "return X(last, '__code__')",
            "return X(int, '__subclasses__')",
            f"{_POOL}.submit(X, note, '__globals__').result()",
            f"{_CHAIN}(Lends(X, ['__globals__']), last)",
        ),
        "type.__call__": ("return X(type, 'T', (object,), {'__reduce_ex__': last}) is not None",),
        "setattr": ("X(last, '__code__', 1)\nreturn True", "X(Exception, 'x', 1)\nreturn True"),
        "delattr": ("X(Equal, '__eq__')\nreturn False", "X(last, '__wrapped__')\nreturn True"),
        "vars": ("return X(dict) if 'copy' in X(dict) else False",),
        "eval": ("return X('().__class__.__base__.__subclasses__()')", "return X('len.__self__')"),
        "exec": ("got = {}\nX('x = len.__self__', got)\nreturn got['x']",),
        "compile": (
            "return X('len.__self__', 'x', 'eval')",
            f"{_POOL}.submit(X, 'len.__self__', 'x', 'eval').result()",
            f"{_CHAIN}(Lends(X, ['x', 'eval']), 'len.__self__')",
        ),
        "open": ("with X(OUTSIDE) as f:\n    return f.read()",),
        "__import__": (
            "return X('subprocess')",
            f"{_POOL}.submit(X, 'subprocess').result()",
            f"{_CHAIN}(Lends(X, []), 'subprocess')",
        ),
        "globals": ("return X()['__builtins__']",),
        "locals": ("return False",),
    }
    made = {name: [session.function("X", text) for text in found] for name, found in texts.items()}
    return {name: [attack for attack in found if attack is not None] for name, found in made.items()}


# -- events that passed the hook

_DENIED: Final = (
    *("os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "subprocess.", "pty.", "socket.connect"),
    *("socket.bind", "os.kill", "os.putenv", "sys.settrace", "sys.setprofile", "sys._current_"),
    *("gc.get_", "code.__new__", "function.__new__", "pickle.find_class", "sys.addaudithook", "signal.", "ctypes."),
)
_PATHS: Final = {
    "os.listdir": (0,),
    "os.scandir": (0,),
    "os.remove": (0,),
    "os.rmdir": (0,),
    "os.mkdir": (0,),
    "os.rename": (0, 1),
    "os.chmod": (0,),
    "os.truncate": (0,),
    "shutil.copyfile": (1,),
    "shutil.rmtree": (0,),
}


def _is_builtins(value: Any) -> bool:
    """Whether that is what a namespace has as its builtins; a session may give the name to anything of its own."""
    return type(value) is types.ModuleType or (type(value) is dict and "__build_class__" in value)


class Watch:
    """A hook behind the wall's, which sees the events that the wall's let pass."""

    def __init__(self, inside: str, workspace: str) -> None:
        self.on = False
        self.seen: list[str] = []
        self._writable = (inside, "/dev/null")
        self._readable = (
            *(
                inside,
                workspace,
                sys.prefix,
                sys.base_prefix,
                os.path.realpath(sys.executable),
                "/usr",
                "/etc/localtime",
            ),
            *("/proc/self/status", "/proc/cpuinfo", "/proc/meminfo", "/sys", "/dev/null", "/dev/urandom", "/etc/fonts"),
            *("/etc/mime.types", *(path for path in map(os.path.realpath, sys.path) if path)),
        )
        sys.addaudithook(self._hook)

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event == "open":
            path, mode, flags = args
            if type(mode) is str:
                writing = not {"w", "a", "x", "+"}.isdisjoint(mode)
            else:
                writing = type(flags) is int and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
            self._path(event, path, writing)
        elif event in _PATHS:
            for index in _PATHS[event]:
                self._path(event, args[index], event not in ("os.listdir", "os.scandir"))
        elif event.startswith(_DENIED):
            self._record(event)

    def _path(self, event: str, path: Any, writing: bool) -> None:
        if issubclass(type(path), str):
            text = str.__str__(path)
        elif issubclass(type(path), bytes):
            text = bytes.decode(path, "utf-8", "replace")
        else:
            return
        text = os.path.realpath(text) if "\0" not in text else text
        if not text.startswith(self._writable if writing else self._readable):
            self._record(f"{event} {'to' if writing else 'of'} {text}")

    def _record(self, what: str) -> None:
        frame: types.FrameType | None = sys._getframe(2)
        own, makes_code = False, what == "code.__new__"
        while frame is not None:
            if "importlib" in frame.f_code.co_filename:
                return  # a library imports one of its own modules
            own = own or adapter.is_session_frame(frame)
            if not own and (adapter.is_trusted(frame.f_code) or (makes_code and adapter.may_compile(frame.f_code))):
                return  # the wall compiles a formula
            frame = frame.f_back
        self.seen.append(what)
