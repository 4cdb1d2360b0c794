"""Definitions of the standard library that are compiled as the session's own: they copy and store by its rules."""

import builtins
import functools
import types

import pytest

from rlm_sandbox.language_wall.names import may_store
from rlm_sandbox.language_wall.registry import HIDDEN, USER, add_class, is_user_function


@pytest.mark.parametrize(
    "copy",
    [
        "functools.update_wrapper(f, L)",
        "f = functools.wraps(L)(f)",
        "f = functools.singledispatch(L)",
        "f = contextlib.contextmanager(L)",
        "f = contextlib.asynccontextmanager(L)",
        "f = functools.lru_cache()(L)",
    ],
)
def test_no_decorator_copies_private_names_of_a_library(session, copy):
    """`__dict__` of a library's class holds modules and live state."""
    source = (
        f"import contextlib, functools, pathlib\nL = pathlib.PurePosixPath\ndef f(): pass\n{copy}\nresult = f._flavour"
    )
    with pytest.raises(AttributeError):
        session.run(source)


def test_what_a_decorator_copies_may_be_stored():
    """Each Python copies other names to a wrapper: one that may not be stored would break every decorator."""
    assert [name for name in functools.WRAPPER_ASSIGNMENTS if not may_store(name)] == []


def test_own_attributes_are_copied_also_private_ones(same):
    """The session's own names come along, as in Python."""
    same("""
        import abc, functools
        def f(): "doc"
        f.calls, f._private = 1, 2
        @functools.wraps(f)
        def g(): pass
        class A(abc.ABC):
            @functools.lru_cache
            @abc.abstractmethod
            def h(self): pass
        result = (g.calls, g._private, g.__name__, g.__doc__, g.__wrapped__ is f, sorted(A.__abstractmethods__))
    """)


def test_context_managers_behave_the_same(same):
    """Entered, left, raised through, used as decorators, stacked."""
    same("""
        import asyncio, contextlib, io
        log = []
        @contextlib.contextmanager
        def cm(name):
            log.append(name)
            try: yield name
            except KeyError as e: log.append(repr(e))
            finally: log.append("end " + name)
        with cm("a") as x: log.append(x)
        with cm("b"): raise KeyError(1)
        @cm("c")
        def f(): return 3
        log.append(f())
        with contextlib.ExitStack() as stack:
            stack.enter_context(cm("d")); stack.callback(log.append, "back")
            stack.enter_context(contextlib.suppress(ValueError))
            raise ValueError
        with contextlib.redirect_stdout(io.StringIO()) as out: print("hidden")
        @contextlib.asynccontextmanager
        async def acm(): yield 7
        async def main():
            async with contextlib.AsyncExitStack() as s: return await s.enter_async_context(acm())
        log.append(asyncio.run(main()))
        result = (log, out.getvalue())
    """)


@pytest.mark.parametrize(
    "source",
    [
        "import abc, json; abc.abstractmethod(json.dumps)",
        "import typing, json; typing.no_type_check(json.JSONEncoder)",
        "import typing, json; typing.runtime_checkable(typing.SupportsInt)",
        "import functools, json; functools.total_ordering(json.JSONEncoder)",
    ],
)
def test_no_decorator_stores_on_a_library(session, source):
    """They would change what the library's own code is."""
    with pytest.raises((AttributeError, TypeError, ValueError)):
        session.run(source)


def test_final_leaves_a_library_alone(session):
    """`typing.final` passes over what takes no attribute, as the library's does."""
    session.run("import typing, json; typing.final(json.JSONEncoder)")
    assert not hasattr(__import__("json").JSONEncoder, "__final__")


def test_a_dataclass_with_slots_is_the_sessions_own(session):
    """Its class is another than the one that the statement made."""
    session.run("""
        import dataclasses
        @dataclasses.dataclass(slots=True)
        class C:
            _x: int
        result = (C(3)._x, vars(C)["__slots__"], [name for name in vars(C) if "made_here" in name])
    """)
    assert session.namespace["result"] == (3, ("_x",), [])
    assert session.namespace["C"] in USER


def test_what_a_metaclass_returns_is_not_taken_for_a_dataclass(session):
    """Classes that libraries make for the session come through its metaclass, which may return any."""
    with pytest.raises((AttributeError, TypeError)):
        session.run("""
            import dataclasses, warnings
            class M(type):
                def __call__(cls, *args): return warnings.catch_warnings
            class N(type, metaclass=M):
                pass
            C = dataclasses.make_dataclass("C", ["x"], slots=True, bases=(type("B", (), {}, metaclass=N),))
            C()._module
        """)
    assert __import__("warnings").catch_warnings not in USER


def test_what_nobody_uses_is_left_out(session):
    """Names and modules of the standard library without a use in the corpora."""
    for name in ("enum.pickle_by_enum_name", "functools.singledispatchmethod", "contextlib.ContextDecorator"):
        module, _, attribute = name.partition(".")
        with pytest.raises(AttributeError):
            session.run(f"import {module}; {module}.{attribute}")
    with pytest.raises(ImportError):
        session.run("import plistlib")


def test_a_class_that_is_left_out_does_not_come_back_as_a_type(session):
    """`type(x)` gives no class that no module gives."""
    session.run("import weakref")
    assert __import__("weakref").finalize in HIDDEN
    assert types.FunctionType not in HIDDEN
    assert session.value("result = type(lambda: 1).__name__") == "function"


def test_the_definitions_run_with_guarded_builtins(session):
    """Their frames are a session's, so that the wall's core guards what they call."""
    wraps = session.wall.builtins["__import__"]("functools", None, None, ("wraps",)).wraps
    assert is_user_function(wraps)
    assert wraps.__builtins__ is not session.wall.builtins
    assert wraps.__builtins__["getattr"] is not builtins.getattr


def test_a_cell_takes_note_of_the_metaclasses_that_libraries_have_made(session):
    """Of those below others too; the session's own stay as they are."""
    meta = type("Meta", (type,), {})
    below = type("Below", (meta,), {})
    own = type("Own", (below,), {})
    add_class(own)
    assert not any(kind in HIDDEN for kind in (meta, below, own))
    session.run("pass")
    assert [kind in HIDDEN for kind in (meta, below, own)] == [True, True, False]
