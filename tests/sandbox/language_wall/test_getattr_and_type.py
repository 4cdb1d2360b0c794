# ruff: noqa: E501 - cells are shown as they are run
"""getattr, hasattr, setattr, delattr, vars, dir, type, isinstance."""

import pytest


def test_dynamic_attribute_access_behaves_the_same(same):
    """Names known at run time only, defaults, dispatch, errors."""
    same("""
        class A:
            x = 1
            def __init__(self): self._y = 2; self.z = [3]
            def visit_a(self): return "a"
            def other(self): return "other"
            def go(self, k): return getattr(self, f"visit_{k}", self.other)(), getattr(self, "_y"), hasattr(self, k)
        a = A()
        def loop(names): return [getattr(a, n, None) for n in names], [hasattr(a, n) for n in names]
        setattr(a, "new", 5); setattr(a, "_p", 6); delattr(a, "z")
        errors = []
        for args in ((a, "nothing"), (a,), (a, 3), (a, "x", 1, 2)):
            try: getattr(*args)
            except (AttributeError, TypeError) as e: errors.append(type(e).__name__)
        name = "real"
        result = (loop(["x", "_y", "nope"]), a.go("a"), a.go("b"), vars(a), errors, getattr(3, name), getattr(3, "imag"),
                  [getattr(o, n) for o, n in [(1, "real"), (2.5, "real")]], "x" in dir(a), vars(A)["x"],
                  getattr([], "append").__name__, [n for n in dir(a) if not n.startswith("__")])
    """)


def test_rebound_builtins_are_respected(same):
    """A user's own ``getattr``, ``type`` or ``hasattr`` is called, wherever it is bound."""
    same("""
        def f(getattr, type, hasattr): return getattr(1, "x"), type(2), hasattr(3, "y"), type(1) == int, type(1).__name__
        class T: __name__ = "mine"
        def mine(*a): return T() if len(a) == 1 else ("mine", *a)
        out = f(mine, mine, mine)
        type_ = type
        type = lambda x: "fake"
        result = ([str(o)[:4] for o in out], type(1), type(1) is int, type_(1))
        del type
        print(type(1))
    """)


def test_type_of_everything_looks_the_same(same):
    """type(x) compares, prints and dispatches as usual."""
    same("""
        from abc import ABC
        from enum import Enum
        class A: pass
        class B(ABC): pass
        class C(Enum): X = 1
        def kinds(values):
            counts = {}
            for v in values: counts[type(v)] = counts.get(type(v), 0) + 1
            return counts, [type(v).__name__ for v in values], [type(v) in (int, str) for v in values]
        def same(a, b): return type(a) is type(b), type(a) == type(b), type(a) != type(b)
        result = (kinds([1, "a", 1.5, A(), B(), C.X, None]), same(1, 2), same(1, "a"), type(A) is type, type(type),
                  isinstance(A, type), type(A)("N", (), {}).__name__, A().__class__, A.__class__, type(None),
                  isinstance(int, type), issubclass(type, object), type(1)(5), repr(type), (1).__class__.__name__)
        one, three = [1], ["N", (), {"x": 1}]
        result += type(*one), type(*three).x, type(*one) is int, type(*one) is type(*one)
        try: type(1) is type(1, key=2)
        except TypeError as error: result += type(error),
    """)


@pytest.mark.parametrize(
    "name",
    [
        "__globals__",
        "__subclasses__",
        "gi_frame",
        "__code__",
        "__closure__",
        "func_globals",
        "_x",
        "__self__",
    ],
)
def test_a_name_made_at_run_time_is_held_like_a_written_one(session, name):
    """However the name is put together, by whichever function it is used."""
    session.namespace["name"] = name
    session.run("def f(): yield 1\ng = f()")
    for call in (
        "getattr(print if '__self__' == name else f, name)",
        "[getattr(x, name) for x in (f, g, print, int)]",
        "def h(x, n): return getattr(x, n)\nh(f, name); h(g, name); h(print, name); h(int, name)",
        "import operator; [operator.attrgetter(name)(x) for x in (f, g, print, int)]",
        "[object.__getattribute__(x, name) for x in (f, g, print, int)]",
        "[type.__getattribute__(x, name) for x in (int, str)]",
        "import inspect; dict(inspect.getmembers(f))[name]",
        "[vars(x)[name] for x in (f, int, g)]",
    ):
        with pytest.raises((AttributeError, TypeError, KeyError)):
            session.run(call)


def test_a_str_subclass_cannot_pass_for_a_harmless_name(session):
    """Its hash and equality say ``append``, its text says something else."""
    result = session.value("""
        class Name(str):
            def __eq__(self, other): return True
            def __hash__(self): return hash("append")
            def startswith(self, *a): return False
        def f(x, n): return getattr(x, n)
        def g(): yield
        getattr([], "append"); f([], "append")
        result = []
        for call in (lambda n: f(g, n), lambda n: getattr(g, n), lambda n: setattr(g, n, 1), lambda n: hasattr(g, n)):
            try: result.append(call(Name("__globals__")))
            except TypeError: result.append("held")
    """)
    assert result == ["held"] * 4


def test_library_objects_of_the_host_cannot_be_changed(session):
    """Classes, functions and modules are shared with the host's own code."""
    for source in (
        "import json; json.JSONEncoder.default = 1",
        "import json; setattr(json.JSONEncoder, 'default', 1)",
        "import json; type.__setattr__(json.JSONEncoder, 'default', 1)",
        "import json; del json.JSONEncoder.default",
        "import json; json.dumps.x = 1",
        "import json; setattr(json.dumps, '__doc__', 1)",
        "int.x = 1",
        "import functools; functools.update_wrapper(print, len)",
        "import functools, json; functools.update_wrapper(json.dumps, len)",
        "import functools, json; functools.wraps(len)(json.JSONEncoder)",
        (
            "import argparse, json; argparse.ArgumentParser().parse_args([], json.JSONEncoder)\n"
            "p = argparse.ArgumentParser(); p.add_argument('--x', dest='default')\n"
            "p.parse_args(['--x', '1'], namespace=json.JSONEncoder)"
        ),
        (
            "import argparse, json\np = argparse.ArgumentParser(); a = p.add_argument('--x', dest='default')\n"
            "a(p, json.JSONEncoder, 1)"
        ),
        "import dataclasses\n@dataclasses.dataclass\nclass A: x: int\ndataclasses.fields(A)[0].name = '__class__'",
        (
            "import dataclasses\n@dataclasses.dataclass\nclass A: x: int\n"
            "dataclasses.Field.name.__set__(dataclasses.fields(A)[0], '__class__')"
        ),
    ):
        with pytest.raises((AttributeError, TypeError)):
            session.run(source)
    import json

    assert callable(json.JSONEncoder.default)
    assert not hasattr(json.dumps, "x")


def test_a_copy_of_a_module_is_the_sessions_own(session):
    """Storing into a module changes the copy only."""
    import math

    session.run("import math; math.pi = 3; math.extra = 1")
    assert session.value("result = math.pi") == 3
    assert math.pi > 3.1
    session.run("import math; math.pi = 3.141592653589793; del math.extra")
