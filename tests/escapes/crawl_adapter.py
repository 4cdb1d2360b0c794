"""What the crawler knows of the wall: the only module of it that names parts of ``rlm_sandbox``.

Everything else of the crawler asks this one: what belongs to the session, what is an original that sessions get
replaced or not at all, what is the wall's own, and whether a frame is one in which the wall trusts itself.
"""

from __future__ import annotations

import ast
import builtins
import functools
import gc
import importlib
import sys
import threading
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from rlm_sandbox.language_wall import _core, audit_hook, names, registry
from rlm_sandbox.language_wall.frozen_functions import DESCRIBED_LATER
from rlm_sandbox.language_wall.function_origins import functions_of
from rlm_sandbox.language_wall.guards import attributes, classes
from rlm_sandbox.language_wall.modules import standard as shims
from rlm_sandbox.language_wall.modules import tables as modules_data
from rlm_sandbox.language_wall.modules import wall_in_force
from rlm_sandbox.language_wall.registry import dict_of, mro_of
from rlm_sandbox.language_wall.wall import LanguageWall
from rlm_sandbox.os_wall.confine import confine
from rlm_sandbox.policy import MIB, FilePolicy, Limits, Policy, load_policy

__all__ = ["POLICIES", "LanguageWall", "confine_to", "dict_of", "make_policy", "mro_of"]

POLICIES: Final = ("strict", "untrusted", "default", "tables", "data")
OWN_PACKAGES: Final = ("rlm_sandbox", "rlm_kernel", "rlm_memory", "rlm_mcp", "RestrictedPython")
_ROOT: Final = str(Path(audit_hook.__file__).parent.parent)

REPLACED_BUILTINS: Final = tuple(
    "eval exec compile open getattr setattr delattr vars globals locals __import__ input".split()
)
"""Builtins that a session gets in another form, or not at all."""

_STAND_INS: Final = frozenset(
    """
    SafeType MetaSafe SafeABCMeta StandIn SessionFormatter SafeFormatter SafeStream AttrGetter MethodCaller
    SingleDispatchMethod NamespaceView WarningsState SourceCode SystemModule PrivateStreams _Names _Kept
    """.split()
)
"""Classes of the wall whose objects a session is meant to have."""


def make_policy(name: str, workspace: str, scratch: str) -> Policy:
    """A stock policy in these folders, with room for many steps in one process."""
    rules = load_policy(name)
    writes = (scratch,) if rules.files.write else ()
    reads = (workspace, scratch) if rules.files.read else ()
    limits = Limits(memory_bytes=768 * MIB, file_bytes=4 * MIB, open_files=256, threads=64)
    return Policy(language=rules.language, files=FilePolicy(read=reads, write=writes), limits=limits)


def confine_to(policy: Policy, scratch: str, keep_fds: list[int]) -> None:
    """Raise the walls of the operating system around this process."""
    confine(policy, scratch=Path(scratch), read=[], keep_fds=keep_fds, fork_gate=False)


# -- what is the session's


def is_session_class(cls: Any) -> bool:
    """Whether the wall takes a class for the session's own."""
    return cls in registry.USER


def is_clean(cls: type) -> bool:
    """Whether every base of a class is the session's own or known to be harmless."""
    return cls in registry.CLEAN


def forget_class(cls: type) -> None:
    """Take back that a class is the session's, so that what follows is judged by itself."""
    _core.expel(registry.USER, cls)
    _core.expel(registry.CLEAN, cls)


def is_session_function(function: Any) -> bool:
    """Whether code of the session defined a function."""
    return registry.is_user_function(function)


def is_session_frame(frame: FrameType) -> bool:
    """Whether code of the session runs in a frame."""
    return registry.is_user_frame(frame)


def is_refusal(error: BaseException) -> bool:
    """Whether an error is the guards', and not what Python or the object says."""
    return type(error) is attributes.AttributeRefused


def code_of(value: Any) -> Any:
    """The code of a function, of a method, or of what is either in a class; None without one."""
    return getattr(getattr(value, "__func__", value), "__code__", None)


def is_of_the_wall(code: Any) -> bool:
    """Whether code is from one of the wall's files."""
    return isinstance(code, CodeType) and code.co_filename.startswith(_ROOT)


def is_of_guards(value: Any) -> bool:
    """Whether a value is what a guard gives in the place of a method, or a part of any class that does no harm."""
    if type(value) is types.GetSetDescriptorType:
        return is_session_class(value.__objclass__)
    if type(value) is types.FunctionType:
        return is_of_the_wall(value.__code__)
    return type(value) is types.BuiltinFunctionType and value.__name__ == "__new__"


def is_copy(module: Any) -> bool:
    """Whether a module is one of the copies that sessions get."""
    return registry.is_sanitised(module)


def unchecked(cls: type) -> str:
    """What a class that is nobody's has in its namespace, and no class that a session could write may have."""
    own = dict_of(cls)
    matched = own.get("__match_args__", ())
    if type(matched) is not tuple or any(names.access(name) is not names.AttributeAccess.NATIVE for name in matched):
        return "__match_args__"
    denied = (name for name in own if name in names.DENIED_STORES and is_session_function(own[name]))
    return next(denied, "")


def is_private(name: str) -> bool:
    """Whether the session may read such a name on its own objects only."""
    return names.access(name) is names.AttributeAccess.PRIVATE and names.is_private(name)


def trusted_below(frame: FrameType | None) -> str:
    """The place of the wall's trusted work that a session's frame was called from; empty when there is none."""
    while frame is not None and is_session_frame(frame):
        frame = frame.f_back
    while frame is not None and not is_session_frame(frame):
        if is_trusted(frame.f_code):
            return f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_qualname}"
        frame = frame.f_back
    return ""


def is_collecting() -> bool:
    """Whether the garbage collector calls this thread: the hook is armed then, whatever frame happened to allocate."""
    return threading.get_ident() in _COLLECTING


_COLLECTING: Final[set[int]] = set()


def _note_collection(phase: str, _info: dict[str, int]) -> None:
    _COLLECTING.clear()
    if phase == "start":
        _COLLECTING.add(threading.get_ident())


gc.callbacks.append(_note_collection)

TRUSTED_BESIDES: Final[set[CodeType]] = set()
"""Code that a reverted fix trusts, beside the wall's own."""


def is_trusted(code: CodeType) -> bool:
    """Whether the wall trusts a piece of its own code."""
    if not code.co_filename.startswith(_ROOT):
        return code in TRUSTED_BESIDES
    return _is_marked(code, "trusted")


def may_compile(code: CodeType) -> bool:
    """Whether a piece of the wall's own code may compile text and make code."""
    return code.co_filename.startswith(_ROOT) and _is_marked(code, "compiling")


def _is_marked(code: CodeType, mark: str) -> bool:
    return any(first <= code.co_firstlineno <= last for first, last in _marked_lines(code.co_filename, mark))


@functools.cache
def _marked_lines(path: str, mark: str) -> tuple[tuple[int, int], ...]:
    """Where the functions of one of the wall's files are that have a mark; the marks themselves are in C."""
    return tuple(
        (node.decorator_list[0].lineno, node.end_lineno or node.lineno)
        for node in ast.walk(ast.parse(Path(path).read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(one).endswith(mark) for one in node.decorator_list)
    )


def close_wall(wall: LanguageWall, judging: tuple[types.ModuleType, ...]) -> None:
    """Close the wall as a kernel does; what judges goes on unseen by the hook, and may take classes back."""
    for module in judging:
        for function in functions_of(module):
            _core.mark(function.__code__, _core.TRUSTED)
    wall.close(*(module.__name__ for module in judging))


# -- what no session may have

_OF_ANY_OBJECT: Final = frozenset(
    """
    types.FunctionType types.LambdaType types.ModuleType types.TracebackType types.coroutine typing.ForwardRef
    weakref.finalize
    """.split()
)
"""Types that ``type(x)`` gives for objects that every session can make; what they may do is the hook's affair."""


def _never_given() -> Iterator[tuple[str, Any]]:
    dropped = [f"{module}.{name}" for module, found in modules_data.DROP.items() for name in found]
    for full in (*modules_data.NEVER_GIVEN, *dropped, *shims.standard_shims()):
        module, _, name = full.rpartition(".")
        if module in sys.modules and (value := vars(sys.modules[module]).get(name)) is not None:
            yield full, value


_UNUSED_FUNCTIONS: Final = frozenset(
    """
    enum.bin enum.global_enum_repr enum.global_flag_repr enum.global_str enum.show_flag_values
    """.split()
)
"""Left out because no program was seen to use them, and harmless."""


def originals(given: set[int]) -> dict[int, str]:
    """The originals of what is replaced or left out, by id; ``given`` are the ids of what modules do give."""
    found = {}
    for full, value in _never_given():
        heap = isinstance(value, type | types.FunctionType | types.BuiltinFunctionType)
        # A name may be left out of one module and the same object be given by another, where it belongs.
        if heap and id(value) not in given and full not in _OF_ANY_OBJECT | modules_data.UNUSED | _UNUSED_FUNCTIONS:
            found[id(value)] = full
    for name in REPLACED_BUILTINS:
        found[id(getattr(builtins, name))] = f"raw {name}"
    return found


def raw_builtin(value: Any) -> str:
    """The name of a raw builtin that sessions get in another form."""
    for name in REPLACED_BUILTINS:
        if value is getattr(builtins, name):
            return name
    return "type" if value is type else ""


def is_raw_metaclass(value: Any) -> bool:
    """Whether a metaclass is the interpreter's or a library's, and no stand-in of the wall."""
    if not isinstance(value, type) or not issubclass(value, type) or value in registry.USER:
        return False
    return value not in (classes.SafeType, classes.MetaSafe, shims.SafeABCMeta)


def own_classes(given: set[int]) -> dict[int, str]:
    """The classes of our packages whose objects no session may have, by id."""
    found = {}
    for module in _own_modules():
        for value in vars(module).values():
            own = isinstance(value, type) and value.__module__ == module.__name__
            if own and id(value) not in given and not _is_given_class(value):
                found[id(value)] = f"{module.__name__}.{value.__qualname__}"
    return found


def _is_given_class(cls: type) -> bool:
    return cls.__name__ in _STAND_INS or issubclass(cls, BaseException) or issubclass(cls, types.ModuleType)


def own_functions(given: set[int]) -> dict[int, str]:
    """The functions of our packages that no session is given, by id."""
    found = {}
    for module in _own_modules():
        for name, value in vars(module).items():
            if type(value) is not types.FunctionType or value.__module__ != module.__name__ or id(value) in given:
                continue
            if name not in _GIVEN_BY_GUARDS:
                found[id(value)] = f"{module.__name__}.{name}"
    return found


_GIVEN_BY_GUARDS: Final = frozenset(
    {"_unbound_format", "_unbound_format_map", "_evaluate_formula", "_copy_of_data", "_cloned"}
)
"""Functions that a session finds in the place of a library's method."""


def _own_modules() -> list[types.ModuleType]:
    return [
        module
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in OWN_PACKAGES and isinstance(module, types.ModuleType)
    ]


def own_namespaces() -> Iterator[tuple[str, dict[str, Any]]]:
    """The live namespaces of our modules and their classes, and the state of the wall."""
    for module in _own_modules():
        if module.__name__.startswith(("rlm_sandbox.os_wall", "rlm_kernel", "rlm_mcp", "rlm_memory")):
            continue  # raising the walls changes the first; the others are behind them
        yield module.__name__, vars(module)
        for value in list(vars(module).values()):
            if isinstance(value, type) and value.__module__ == module.__name__:
                yield f"{module.__name__}.{value.__name__}", live_namespace(value)
    yield "rlm_sandbox.language_wall.modules.wall_in_force.IN_FORCE", vars(wall_in_force.IN_FORCE)


def is_steady(owner: str, key: str) -> bool:
    """Whether a name in one of our namespaces keeps its value while a session lives."""
    return not owner.endswith(".IN_FORCE") or key in _STEADY


_STEADY: Final = frozenset({"open", "evaluate", "stands"})


def is_open(owner: Any) -> bool:
    """Whether it is known that libraries store on it: on classes that are not the standard library's."""
    if isinstance(owner, types.FunctionType):
        return owner.__name__ in DESCRIBED_LATER.get(str(owner.__module__), ())
    return isinstance(owner, type) and is_open_package(str(owner.__module__))


def is_open_package(name: str) -> bool:
    """Whether a module is of a library beyond the standard one."""
    top = name.partition(".")[0]
    return top not in sys.stdlib_module_names and top not in OWN_PACKAGES


def live_namespace(cls: type) -> dict[str, Any]:
    """The live dict of a class."""
    found: dict[str, Any] = gc.get_referents(dict_of(cls))[0]
    return found


def words_of_the_wall() -> list[str]:
    """Texts in the wall's code that could be a name: a rule that goes by a name has that name among its constants."""
    found: set[str] = set()
    for module in _language_modules():
        for value in list(vars(module).values()):
            code = getattr(value, "__code__", None)
            if isinstance(code, CodeType):
                found.update(_texts(code))
            if isinstance(value, type):
                for method in vars(value).values():
                    if isinstance(inner := getattr(method, "__code__", None), CodeType):
                        found.update(_texts(inner))
    return sorted(text for text in found if text.isidentifier() and len(text) > 2)


def owners_of_the_wall() -> list[str]:
    """Names of modules and classes that the wall holds, in tables too: a rule may go by what a class is called."""
    found = {*words_of_the_wall(), *_texts_in_tables(_language_modules())}
    classes_known = {cls.__name__ for cls in gc.get_objects() if isinstance(cls, type)}
    return sorted(text for text in found if text in sys.modules or text in classes_known)


def words_beside(values: Iterable[Any]) -> set[str]:
    """The texts in tables of the modules of the wall in which the code of these values is."""
    files = {code.co_filename for code in map(code_of, values) if is_of_the_wall(code)}
    return _texts_in_tables(module for module in _language_modules() if module.__file__ in files)


def _texts_in_tables(modules: Iterable[types.ModuleType]) -> set[str]:
    tables = (value for module in modules for value in list(vars(module).values()))
    kinds = (tuple, set, frozenset, list, dict)
    return {text for value in tables if isinstance(value, kinds) for text in value if isinstance(text, str)}


def dangerous_names() -> frozenset[str]:
    """Attribute names that some object's guard decides on, or that are never given."""
    return names.GUARDED_DUNDERS | names.GUARDED_PUBLIC | names.DENIED_ATTRIBUTES


def _language_modules() -> list[types.ModuleType]:
    return [module for module in _own_modules() if module.__name__.startswith("rlm_sandbox.language_wall")]


def _texts(code: CodeType) -> Iterator[str]:
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, CodeType):
            yield from _texts(constant)


def admitted(policy: Policy) -> list[str]:
    """The modules that a policy admits and that are installed."""
    found = []
    for name in policy.language.imports:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
        found.append(name)
    return found


def copies(policy: Policy) -> dict[str, types.ModuleType]:
    """The module copies of a policy by name, submodules included."""
    from rlm_sandbox.language_wall.wall import _modules_for

    return dict(_modules_for(policy)._copies)
