"""nonlocal, global, closures, walrus."""

import dis
import sys
from types import CodeType

import pytest


def test_nonlocal_and_global_rebind_outer_names(same):
    """Counters in closures, module-level totals."""
    same("""
        total = 0
        def counter(start):
            n = start
            def step(by=1):
                nonlocal n
                global total
                n += by; total += by
                return n
            return step
        a, b = counter(0), counter(10)
        result = (a(), a(5), b(), total)
    """)


def test_walrus_binds_where_python_binds_it(same):
    """In conditions, comprehensions, nested calls."""
    same("""
        def f(data):
            if (n := len(data)) > 2:
                kept = [y for x in data if (y := x * 2) > 2]
                return n, kept, y
        while (k := globals_free()) if False else False: pass
        result = (f([1, 2, 3]), [last := i for i in range(3)], last, (lambda q: (w := q + 1, w * 2))(4))
    """)


def test_comprehensions_generators_and_lambdas_see_the_same_names(same):
    """Late binding, nested scopes, class scope."""
    same("""
        class C:
            size = 3
            cells = [i for i in range(size)]
            def __init__(self): self._k = 2
            def scaled(self): return [self._k * c for c in self.cells], {c: self._k for c in self.cells}, \\
                sum(self._k for _ in self.cells), (lambda: self._k)(), list(map(lambda c: c + self._k, self.cells))
        fs = [lambda: i for i in range(3)]
        result = (C().scaled(), C.cells, [f() for f in fs], {(a, b) for a in range(2) for b in range(a + 1)})
    """)


def test_a_name_that_another_frame_binds_is_read_once_for_check_and_use(session):
    """A generator may run on another thread; what a frame binds alone, and its arguments, are read twice."""
    binding = {
        "y = given": False,
        "y = given; y = 1": False,
        "y = given; [(y := each) for each in given]": False,
        "y = given; later = ((y := each) for each in given)": True,
        "y = given; later = ([(y := each) for _ in 'a'] for each in given)": True,
        "y = given\n  def later():\n    nonlocal y; y = 1": True,
    }
    for statements, kept in binding.items():
        session.run(f"def f(given):\n  {statements}\n  return y._x")
        assert (".value" in session.namespace["f"].__code__.co_varnames) is kept, statements


@pytest.mark.parametrize("statements", ["y = given", "y = given\n  y = y"])
def test_a_function_inside_reads_a_name_of_another_frame_once(session, statements: str) -> None:
    """It may run on another thread, while that frame binds the name: no check that the frame has made holds for it."""
    session.run(f"def f(given):\n  {statements}\n  for _ in given: y._x\n  def g(): return y._x\n  return g")
    (inner,) = (each for each in session.namespace["f"].__code__.co_consts if isinstance(each, CodeType))
    assert (inner.co_freevars, _loads(inner, "y")) == (("y",), 1)


@pytest.mark.parametrize("body", ["def g(): return given._x", "y = given\n  for _ in y: [y._x for _ in y]"])
def test_code_that_may_get_any_closure_relies_on_no_check_of_another_frame(session, body: str) -> None:
    """A function of a snapshot, or a comprehension in it, gets cells that nobody has checked. Each has one body."""
    codes = [session.wall.compile(f"def f(given):\n  given._x\n  {body}", "<s>", "exec", careful=True)]
    for code in codes:
        codes += [each for each in code.co_consts if isinstance(each, CodeType)]
        assert not [name for name in code.co_freevars if not name.isidentifier()], code
    assert len({code.co_name for code in codes}) == len(codes)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the syntax is of Python 3.12")
def test_what_is_evaluated_later_checks_what_it_uses(session):
    """An alias reads its names in a frame of its own, on whatever thread asks for its value."""
    for statements in ("type A = y._x; late = A", "def g[T: y._x](): pass; late = g.__type_params__[0]"):
        statement = statements.replace("; late", "\n  late")
        session.run(f"def f(given):\n  for y in given: pass\n  {statement}\n  return late")
        f = session.namespace["f"].__code__
        inner = [each for each in f.co_consts if hasattr(each, "co_consts")]
        codes = inner + [each for code in inner for each in code.co_consts if hasattr(each, "co_consts")]
        assert sum(_loads(code, "y") for code in codes) == 1, statement


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the syntax is of Python 3.12")
def test_a_type_parameter_is_not_taken_for_the_argument_that_it_hides(session):
    """What was found of the argument says nothing about it."""
    session.run("""
        class Own: _x = 1
        def f(given):
            def g[given](): return given._x
            return given._x, g
        try: f(Own())[1]()
        except AttributeError as error: result = type(error).__name__
    """)
    assert session.namespace["result"] == "AttributeRefused"


def test_the_name_that_is_checked_is_the_name_that_is_read(session):
    """Python 3.12.1 mangles what follows a generic class inside a method by that class."""
    generic = "class C[T]: pass" if sys.version_info >= (3, 12) else "class C: pass"
    session.run(f"class K:\n  def f(self, other):\n    {generic}\n    other.__m += 1\n    return other.__m")
    names = session.namespace["K"].f.__code__.co_names
    assert [name for name in names if name.endswith("__m")] == ["_K__m"]


def _loads(code: CodeType, name: str) -> int:
    return sum(step.argval == name and step.opname == "LOAD_DEREF" for step in dis.get_instructions(code))
