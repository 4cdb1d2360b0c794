"""Decorators, functools, type aliases and type parameters."""

import sys

import pytest


def test_decorators_behave_the_same(same):
    """wraps, arguments, classes as decorators, stacking, caches, dispatch."""
    same("""
        import functools, operator
        def logged(prefix):
            def wrap(f):
                @functools.wraps(f)
                def inner(*a, **k):
                    inner.calls += 1
                    return prefix, f(*a, **k)
                inner.calls = 0
                return inner
            return wrap
        class Count:
            def __init__(self, f): functools.update_wrapper(self, f); self._f, self.n = f, 0
            def __call__(self, *a): self.n += 1; return self._f(*a)
        @logged("a")
        @logged("b")
        def f(x):
            "doc"
            return x
        @Count
        def g(x): return x + 1
        @functools.lru_cache(maxsize=None)
        def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
        @functools.singledispatch
        def show(x): return "any"
        @show.register(int)
        def _(x): return "int"
        @show.register
        def _(x: list): return "list"
        @functools.total_ordering
        class V:
            def __init__(self, v): self._v = v
            def __eq__(self, o): return self._v == o._v
            def __lt__(self, o): return self._v < o._v
        result = (f(1), f.calls, f.__name__, f.__doc__, f.__wrapped__.__wrapped__(2), g(1), g.n, g.__name__, fib(30),
                  fib.cache_info().hits, show(1), show([]), show("s"), V(1) >= V(0),
                  functools.reduce(operator.add, range(5)), functools.partial(pow, 2)(5),
                  operator.attrgetter("x.real")(type("O", (), {"x": 3})), operator.itemgetter(1)([4, 5]),
                  operator.methodcaller("upper")("a"), list(map(operator.attrgetter("_v"), [V(1), V(2)])))
    """)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the syntax is of Python 3.12")
def test_type_parameters_and_aliases_behave_the_same(same):
    """PEP 695 on functions, classes and aliases."""
    same("""
        type Pair[T] = tuple[T, T]
        type Tree = dict[str, Tree | int]
        def first[T: (int, str)](xs: list[T]) -> T: return xs[0]
        class Stack[T]:
            def __init__(self): self._items: list[T] = []
            def push(self, x: T) -> None: self._items.append(x)
        def spread[*Ts, **P](*args: *Ts): return args
        s = Stack[int](); s.push(1)
        result = (Pair[int], Tree.__value__, first([3]), s._items, spread(1, 2), Stack.__type_params__, Pair.__name__)
    """)


def test_aliases_and_unions_of_types_work(same):
    """Ordinary aliases, unions, generics."""
    same("""
        from typing import Union, Callable, Literal, Optional, get_args, get_origin, Type
        Number = int | float
        result = (Number, isinstance(1, Number), Union[int, str], Callable[[int], str], Literal["a"],
                  get_args(dict[str, int]), get_origin(list[int]), Optional[int], get_origin(Type[int]) is type,
                  int | None, type | None)
    """)


def test_annotation_text_is_evaluated_under_the_policy(session):
    """get_type_hints and singledispatch evaluate no text that a cell could not hold."""
    assert session.value("import typing\ndef f(x: 'list[int]'): pass\nresult = typing.get_type_hints(f)") == {
        "x": list[int]
    }
    for source in (
        "import typing\ndef f(x: '().__class__.__base__.__subclasses__()'): pass\nresult = typing.get_type_hints(f)",
        (
            "import functools\n@functools.singledispatch\ndef f(x): 1\n"
            "@f.register\ndef g(x: '().__class__.__base__.__subclasses__()'): 1"
        ),
        "import inspect\ndef f(x: 'print()'): 1\ninspect.signature(f, eval_str=True)",
    ):
        with pytest.raises((SyntaxError, TypeError)):
            session.run(source)
