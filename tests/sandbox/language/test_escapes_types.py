# ruff: noqa: E501 - cells are shown as they are run
"""Escapes: types, metaclasses, class plumbing, descriptors, copying."""

import pytest

# A payload that is stopped half-way leaves coroutines, files and threads behind.
pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]

REAL = {
    "type of a class": "loot = type(int)",
    "class of a class": "loot = int.__class__",
    "class of a class by getattr": "loot = getattr(int, '__class__')",
    "type of type": "loot = type(type)",
    "mro of a metaclass": "class M(type): pass\nloot = M.__mro__[1]",
    "base of a metaclass": "class M(type): pass\nloot = M.__base__",
    "bases of a metaclass": "class M(type): pass\nloot = M.__bases__[0]",
    "mro method of a metaclass": "class M(type): pass\nloot = M.mro(M)[1]",
    "inspect.getmro": "import inspect\nclass M(type): pass\nloot = inspect.getmro(M)[1]",
    "origin of Type": "import typing\nloot = typing.get_origin(typing.Type[int])",
    "origin attribute": "import typing\nloot = typing.Type[int].__origin__",
    "argument of a union": "import typing\nloot = typing.get_args(typing.Union[type, int])[0]",
    "argument attribute": "import typing\nloot = typing.Optional[type].__args__[0]",
    "bound of a type variable": "import typing\nloot = typing.TypeVar('T', bound=type(int)).__bound__",
    "type of an ABC": "import abc\nloot = type(abc.ABC)",
    "type of an enum": "import enum\nloot = type(enum.Enum)",
    "type of a named tuple's class": "import collections\nloot = type(collections.namedtuple('A', 'x'))",
    "type in a comprehension": "loot = [type(c) for c in (int,)][0]",
    "type by map": "loot = list(map(type, [int]))[0]",
    "type in a lambda": "loot = (lambda c: type(c))(int)",
    "type in a function": "def f(c): return type(c)\nloot = f(int)",
    "type compared with a spy": (
        "class Spy:\n    def __eq__(self, other): got.append(other); return True\ngot = []\n"
        "type(int) == Spy()\nloot = got[0]"
    ),
    "type looked up in a spy": (
        "class Spy:\n    def __contains__(self, x): got.append(x); return True\ngot = []\ntype(int) in Spy()\nloot = got[0]"
    ),
    "type used as a key": "d = {type(int): 1}\nloot = list(d)[0]",
    "return annotation": "def f(x: type(int)): pass\nloot = f.__annotations__['x']",
    "argument of a metaclass's new": (
        "got = []\nclass M(type):\n    def __new__(m, *a): got.append(super().__new__); return super().__new__(m, *a)\n"
        "class C(metaclass=M): pass\nloot = got[0].__self__"
    ),
    "type through singledispatch": (
        "import functools\n@functools.singledispatch\ndef f(x): pass\nf.register(int, len)\n"
        "loot = type(list(f.registry)[0])"
    ),
    "object's getattribute": "loot = object.__getattribute__",
    "type's getattribute": "loot = type.__getattribute__",
    "object's setattr": "loot = object.__setattr__",
    "super's getattribute": "class A:\n    def f(self): return super().__getattribute__('f')\nloot = A().f().__func__.__code__",
    "class of super": "class A:\n    def f(self): return super().__self_class__\nloot = type(A().f())",
    "globals by a getset": "loot = type(lambda: 0).__globals__.__get__(lambda: 0)",
    "code by a member": "loot = type(lambda: 0).__code__.__get__(lambda: 0)",
    "frame by a type's member": "loot = type(1 for _ in [0]).gi_frame.__get__((1 for _ in [0]))",
    "dict descriptor": "loot = type.__dict__['__subclasses__'].__get__(object)() and type",
    "replace of a dataclass metaclass": (
        "import dataclasses\ngot = {}\n"
        "class M(type):\n    def __new__(m, *a, **k): got.update(k); return type.__new__(m, 'X', (), {})\n"
        "    def __init__(c, *a, **k): pass\n"
        "M.__annotations__ = {'__getattribute__': 1}\ndataclasses.dataclass(init=False)(M)\n"
        "class A(metaclass=M): pass\ndataclasses.replace(A)\nloot = got['__getattribute__']"
    ),
}


@pytest.mark.parametrize("payload", REAL.values(), ids=REAL)
def test_a_payload_that_reaches_the_raw_types_gets_nothing(attacks, payload):
    """Each works without the wall and holds behind it."""
    assert attacks.works_without_wall(payload)
    attacks.holds(payload)


# Not an escape by themselves: each would be the first step of one.
STEPS = {
    "array interface": "class A: __array_interface__ = {'data': (0, False), 'shape': (1,), 'typestr': '|u1'}",
    "array struct": "class A:\n    @property\n    def __array_struct__(self): return 0",
    "array interface by type": "type('A', (), {'__array_interface__': {}})",
    "array interface on an instance": "class A: pass\nA().__array_interface__ = {}",
    "array interface on a namespace": "import types\ntypes.SimpleNamespace().__array_interface__ = {}",
    "reduce": "import copy\nclass A:\n    def __reduce__(self): return (print, ('called',))\ncopy.copy(A())",
    "reduce on the instance": "import copy\nclass A: pass\na = A(); a.__reduce_ex__ = lambda p: (print, ())",
    "prepare": "class M(type):\n    @classmethod\n    def __prepare__(m, *a): return {'__reduce__': 1}",
    "prepare by type": "type('M', (type,), {'__prepare__': lambda *a: {}})",
    "setstate of a partial": "import functools\nfunctools.partial(print).__setstate__((eval, (), {}, {}))",
    "code object": "type((lambda: 0).__code__)(0, 0, 0, 0, 0, b'', (), (), (), '', '', 1, b'')",
    "function from code": "type(lambda: 0)((lambda: 0).__code__, {})",
    "new code for a function": "def f(): pass\nf.__code__ = (lambda: 1).__code__",
    "new defaults": "import json\njson.dumps.__defaults__ = (1,)",
    "new globals": "def f(): pass\nf.__globals__['x'] = 1",
    "builtins of the module": "import builtins\nbuiltins.len = 1",
    "new module attribute of the host": "import sys\nsys.modules['json'].dumps = 1",
    "own class's globals": "class A:\n    def f(self): pass\nA.f.__globals__",
    "slots of a library": "import dataclasses\ndataclasses.Field.name.__set__(dataclasses.field(), 'x')",
    "descriptor of a library": "import datetime\ndatetime.datetime.year.__get__(datetime.datetime.now())",
    "non-text names": "type('A', (), {1: 2})",
    "str subclass as a name": "class S(str): pass\ntype('A', (), {S('__reduce__'): 2})",
    "namespace that changes": (
        "class N(dict):\n    def keys(self): return ['x']\n    def __iter__(self): return iter(['x'])\n"
        "type('A', (), N({'__reduce__': 1}))"
    ),
    "annotations that change": (
        "import dataclasses\nclass D(dict):\n    def __iter__(self): return iter(())\nclass A: pass\n"
        "A.__annotations__ = D({'__class__': int})\ndataclasses.dataclass(A)"
    ),
    "build class by name": "__build_class__(lambda: None, 'A')",
    "library base with code": "class F(type(lambda: 0)): pass",
}


@pytest.mark.parametrize("payload", STEPS.values(), ids=STEPS)
def test_the_first_step_of_an_escape_is_refused(attacks, payload):
    """Each payload raises."""
    assert attacks.holds(payload) != "got nothing"
