"""The LanguageWall object: interface, helpers, preparation, streams."""

import io
import os
import subprocess
import sys
import types

import pytest

from rlm_sandbox.errors import PolicyViolation
from rlm_sandbox.language_wall.compiler import compile_guarded
from rlm_sandbox.language_wall.streams import safe_stream


def test_helpers_are_builtins(make_session):
    """K-22: ``llm_query`` is called like any builtin."""
    session = make_session(helpers={"llm_query": lambda prompt: f"[{prompt}]"})
    assert session.value("result = llm_query('x')") == "[x]"
    assert session.wall.builtins["llm_query"]("y") == "[y]"


def test_only_code_of_this_compiler_is_known(session):
    """An equal code object from elsewhere is not."""
    code = session.wall.compile("x = 1", "<cell>", "exec")
    twin = compile("x = 1", "<cell>", "exec")
    assert session.wall.made(code)
    assert code == twin
    assert not session.wall.made(twin)
    assert not session.wall.made(code.replace())


def test_all_modes_and_trees_compile(session):
    """exec, eval, single; text or a tree."""
    import ast

    session.wall.prepare(session.namespace)
    assert eval(session.wall.compile("1 + 1", "<c>", "eval"), session.namespace) == 2
    assert eval(session.wall.compile(ast.parse("2 * 3", mode="eval"), "<c>", "eval"), session.namespace) == 6
    shown = []
    sys.displayhook, before = shown.append, sys.displayhook
    try:
        exec(session.wall.compile("7", "<c>", "single"), session.namespace)
    finally:
        sys.displayhook = before
    assert shown == [7]


def test_code_objects_can_be_hashed_and_compared(session):
    """IPython and tracebacks keep code objects in dicts."""
    source = "class A:\n def f(self): self._x = getattr(self, 'y').format(1); return type(self)"
    codes = [session.wall.compile(source, "<c>", "exec") for _ in range(2)]
    todo = list(codes)
    while todo:
        code = todo.pop()
        same = code.replace()
        assert (same is code, {code: "found"}[same]) == (False, "found")
        todo += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]


def test_guards_cannot_be_named(session):
    """They are constants: no namespace holds them, no variable shadows them."""
    session.run("def f(x): return x._a if False else getattr(x, 'b', 0), type(x)\nf(1)")
    names = set(session.namespace) | set(session.namespace["f"].__code__.co_names)
    assert not [name for name in names if "guard" in name.lower() or name.isupper()]
    assert session.namespace["f"].__code__.co_names == ("_a", "getattr", "type") or "_a" in names


def test_prepare_puts_the_builtins_back(session):
    """Whatever a cell or a library did to the namespace."""
    session.run("x = 1")
    session.namespace["__builtins__"] = __builtins__
    session.namespace["__loader__"] = session.namespace["__spec__"] = object()
    session.wall.prepare(session.namespace)
    assert session.namespace["__builtins__"] is session.wall.builtins
    assert "__loader__" not in session.namespace
    assert "__spec__" not in session.namespace
    assert session.namespace["x"] == 1


def test_syntax_errors_are_pythons_own(session):
    """Not refusals of the policy."""
    for source in ("x = = 1", "def f(:", "return 1", "'abc"):
        with pytest.raises(SyntaxError) as caught:
            session.wall.compile(source, "<c>", "exec")
        assert not isinstance(caught.value, PolicyViolation)


def test_deeply_nested_code_compiles_or_is_refused_with_advice(session):
    """Never a RecursionError, which IPython would take for a broken transformer."""
    assert session.value("result = " + "+".join(["1"] * 800)) == 800
    assert session.value("result = " + "(" * 80 + "1" + ")" * 80) == 1
    limit = sys.getrecursionlimit()
    with pytest.raises(SyntaxError, match=r"too|complex|overflow"):
        session.wall.compile("x" + ".a" * 60_000, "<c>", "exec")
    assert sys.getrecursionlimit() == limit


def test_the_streams_lead_nowhere(session):
    """What user code gets for stdout writes text and gives nothing else of the kernel's stream."""

    class Real(io.StringIO):
        session = "the kernel"
        name = "<stdout>"

    real = Real()
    stream = safe_stream(real)
    print("a", 1, file=stream, flush=True)
    stream.writelines(["b", "c"])
    assert real.getvalue() == "a 1\nbc"
    assert (stream.isatty(), stream.writable(), stream.readable(), stream.encoding) == (
        False,
        True,
        False,
        "utf-8",
    )
    with pytest.raises(io.UnsupportedOperation):
        stream.fileno()
    with pytest.raises(TypeError):
        stream.write(b"x")
    session.namespace["out"] = stream
    for name in ("session", "parent", "_write", "_flush", "buffer", "__dict__"):
        with pytest.raises((AttributeError, TypeError)):
            session.run(f"out.{name}")


def test_classes_that_nobody_uses_are_forgotten():
    """A session that defines classes in a loop does not keep them for ever (a process of its own: no other threads)."""
    script = """
import gc, weakref
from rlm_sandbox.language_wall import registry
kept = [type(f"Kept{i}", (), {}) for i in range(3)]
others = [type(f"C{i}", (), {}) for i in range(3000)]
for cls in kept + others:
    registry.add_class(cls)
gone = [weakref.ref(cls) for cls in others]
del cls, others
gc.collect()
assert all(reference() is None for reference in gone)
assert all(cls in registry.USER and cls in registry.CLEAN for cls in kept)
assert not any(type(f"D{i}", (), {}) in registry.USER for i in range(3000))  # at the same addresses
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=100)


def test_a_cells_own_constants_are_never_taken_for_guards(session):
    """Each compilation has placeholders of its own, random over 190 bits."""
    assert session.value(f"result = [{1 << 200}, {(1 << 200) + 5}, type(1).__name__]") == [
        1 << 200,
        (1 << 200) + 5,
        "int",
    ]


def test_compiling_leaves_the_collector_as_it_was(session):
    """It is off only meanwhile, also when the cell is refused."""
    import gc

    assert gc.isenabled()
    session.refusal("eval('1')")
    assert gc.isenabled()
    gc.disable()
    try:
        session.wall.compile("1", "<c>", "eval")
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_an_unsettled_access_stops_the_compilation(session, monkeypatch):
    """An access that no scope settled would be compiled without its guard: nothing is compiled instead."""
    from rlm_sandbox.language_wall.transform.transformer import GuardTransformer

    monkeypatch.setattr(GuardTransformer, "_leave_function", lambda self, *_: setattr(self, "scope", self.scope.parent))
    with pytest.raises(AssertionError, match="without its guard"):
        compile_guarded("def f(x): return x._y", "<c>", "exec", 0, {})


_CLOSED = """
import sys
from rlm_sandbox.language_wall.wall import LanguageWall
from rlm_sandbox.policy import load_policy

policy = load_policy("default")
LanguageWall.preload(policy)
wall, namespace = LanguageWall(policy, helpers={"RAW": getattr}), {}
wall.close()
wall.prepare(namespace)
code = wall.compile(sys.stdin.read(), "<cell>", "exec")
with wall.user():
    exec(code, namespace)
"""


@pytest.mark.parametrize(
    ("source", "error"),
    [
        pytest.param(
            "import json\nfrom concurrent.futures import ThreadPoolExecutor\n"
            "ThreadPoolExecutor(1).submit(RAW, json.loads, '__globals__').result()",
            "AttributeRefused",
            id="a library's thread calls an original",
        ),
        pytest.param(
            "import collections, json\n"
            "class Lends:\n"
            "    def __getattribute__(self, name): return RAW if name == '__class__' else ['__globals__']\n"
            "collections.ChainMap.new_child(Lends(), json.loads)",
            "AttributeRefused",
            id="a library that compiles text calls an original",
        ),
        pytest.param(
            "import collections.abc\ncollections.abc.ItemsView.__init__(type, 1)",
            "cannot set '_mapping' attribute of immutable type 'type'",
            id="a library stores on our type",
        ),
        pytest.param(
            "class Made(KeyError()):\n    def f(self): return __class__\nMade.args[2]['__classcell__'].claim",
            "'object' object has no attribute 'claim'",
            id="a namespace is handed out with what stands for its cell",
        ),
    ],
)
def test_a_closed_wall_stands(source, error):
    """As in a kernel, where the wall has been closed and the hook watches for good."""
    # Without what `make cover` measures by: its work at the end of a process is what the hook refuses for good.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    command = [sys.executable, "-c", _CLOSED]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1
    assert error in done.stderr
