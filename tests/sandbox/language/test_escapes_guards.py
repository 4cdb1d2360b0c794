# ruff: noqa: E501 - cells are shown as they are run
"""Escapes: shadowing, replacing and confusing guards (RestrictedPython's advisories and their relatives).

Each payload puts what it got into ``loot``. ``works_without_wall`` proves that it is an attack at all: plain
CPython gives the capability. ``holds`` proves that the session got nothing.
"""

import pytest

# A payload that is stopped half-way leaves coroutines, files and threads behind.
pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]

# CVE-2023-37271: stack frames through generators; CVE-2023-41039: str.format; CVE-2024-47532: string.Formatter;
# CVE-2025-22153: except*; CVE-2026-55830: positional-only parameters shadow guards; CVE-2026-76825: Formatter again.
REAL = {
    "generator frame": "g = (1 for _ in [0])\nloot = g.gi_frame",
    "frame of a running generator": "g = (g.gi_frame.f_back for _ in [0])\nloot = next(g)",
    "coroutine frame": "async def f(): pass\nc = f()\nloot = c.cr_frame\nc.close()",
    "async generator frame": "async def f(): yield\nloot = f().ag_frame",
    "generator code": "loot = (1 for _ in [0]).gi_code",
    "frame by getattr": "loot = getattr((1 for _ in [0]), 'gi_' + 'frame')",
    "frame by attrgetter": "import operator\nloot = operator.attrgetter('gi_frame')(1 for _ in [0])",
    "frame by methodcaller": (
        "import operator\nloot = operator.methodcaller('__getattribute__', 'gi_frame')(1 for _ in [0])"
    ),
    "frame by match": "match (1 for _ in [0]):\n    case object(gi_frame=loot): pass",
    "frame by a keyword pattern on a subclass": (
        "import collections.abc\nmatch (1 for _ in [0]):\n    case collections.abc.Generator(gi_frame=loot): pass"
    ),
    "frame by a positional pattern": (
        "class M(type):\n    def __instancecheck__(c, o): return True\n"
        "class C(metaclass=M): __match_args__ = ('gi_frame',)\n"
        "match (1 for _ in [0]):\n    case C(loot): pass"
    ),
    "frame by a positional pattern of an ABC": (
        "import abc\nclass C(abc.ABC): __match_args__ = ('gi_frame',)\ng = (1 for _ in [0])\nC.register(type(g))\n"
        "match g:\n    case C(loot): pass"
    ),
    "frame by an inherited pattern": (
        "class M(type):\n    def __instancecheck__(c, o): return True\n"
        "class B: __match_args__ = ('gi_frame',)\nclass C(B, metaclass=M): pass\n"
        "match (1 for _ in [0]):\n    case C(loot): pass"
    ),
    "function globals": "loot = (lambda: 0).__globals__",
    "library globals": "import json\nloot = json.dumps.__globals__",
    "builtins of a function": "loot = (lambda: 0).__builtins__",
    "code of a function": "loot = (lambda: 0).__code__",
    "code of a library function": "import json\nloot = json.dumps.__code__",
    "closure cell": "def f():\n    x = 1\n    return lambda: x\nloot = f().__closure__[0]",
    "module of a builtin": "loot = print.__self__",
    "module of a bound builtin": "import math\nloot = math.floor.__self__",
    "builtins by name": "loot = __builtins__ if not isinstance(__builtins__, dict) else __builtins__['eval']",
    "builtins by loader": "import json\nloot = json.__builtins__",
    "loader of a module": "import json\nloot = json.__spec__.loader.get_code('json')",
    "subclasses": "loot = type(().__class__.__base__.__subclasses__()[0])",
    "globals of a subclass's init": (
        "for c in object.__subclasses__():\n    g = getattr(c.__init__, '__globals__', {})\n"
        "    if 'sys' in g: loot = g['sys']; break"
    ),
    "mro to object to subclasses": "loot = [c for c in ''.__class__.__mro__[-1].__subclasses__()] and type",
    "star pattern to builtins": "match print:\n    case object(__self__=loot): pass",
    "exception frame": "try: 1/0\nexcept ZeroDivisionError as e: loot = e.__traceback__.tb_frame",
    "exception frame in a handler": "import sys\ntry: 1/0\nexcept ZeroDivisionError: loot = sys.exc_info()[2].tb_frame",
    "frame by getattr of a traceback": "try: 1/0\nexcept Exception as e: loot = getattr(e.__traceback__, 'tb_frame')",
    "next traceback's frame": (
        "def f(): 1/0\ntry: f()\nexcept Exception as e: loot = e.__traceback__.tb_next.tb_frame.f_back"
    ),
    "frame from __exit__": (
        "class C:\n    def __enter__(s): pass\n    def __exit__(s, t, v, tb): s.__class__.tb = tb; return True\n"
        "with C(): 1/0\nloot = C.tb.tb_frame"
    ),
    "frame from throw": "def g():\n    try: yield\n    except Exception as e: yield e.__traceback__\n"
    "x = g(); next(x)\nloot = x.throw(ValueError()).tb_frame",
}


@pytest.mark.parametrize("payload", REAL.values(), ids=REAL)
def test_a_payload_that_escapes_plain_python_gets_nothing(attacks, payload):
    """Each works without the wall and holds behind it."""
    assert attacks.works_without_wall(payload)
    attacks.holds(payload)


# Guards by name are what stock RestrictedPython has: each of these once replaced one.
SHADOWING = {
    "parameter named like a guard": "def f(_getattr_): return print.__self__\nloot = f(lambda o, n: o)",
    "positional-only parameter": "def f(_getattr_, _getitem_, /): return print.__self__\nloot = f(1, 2)",
    "assignment": "_getattr_ = getattr\nloot = print.__self__",
    "walrus": "(_getattr_ := getattr)\nloot = print.__self__",
    "import as": "from operator import attrgetter as _getattr_\nloot = print.__self__",
    "class body": "class C:\n    _getattr_ = getattr\n    loot = print.__self__\nloot = C.loot",
    "except as": "try: 1/0\nexcept Exception as _getattr_: loot = print.__self__",
    "for": "for _getattr_ in [getattr]: loot = print.__self__",
    "with": "import contextlib\nwith contextlib.nullcontext(getattr) as _getattr_: loot = print.__self__",
    "match": "match getattr:\n    case _getattr_: loot = print.__self__",
    "delete": "_getattr_ = 1\ndel _getattr_\nloot = print.__self__",
    "global": "def f():\n    global _getattr_\n    _getattr_ = getattr\nf()\nloot = print.__self__",
    "type parameter": "def f[_getattr_](x): return print.__self__\nloot = f(1)",
    "print collector": "_print_ = _print = getattr\nprint(1)\nloot = print.__self__",
    "metaclass guard": "__metaclass__ = type\nclass C: pass\nloot = print.__self__",
    "build class": "__build_class__ = lambda *a: loot\nloot = print.__self__",
    "import function": "__import__ = lambda *a: 1\nimport os\nloot = os.system",
    "temporary": "locals_ = vars\nloot = vars()['.value']",
    "flag of a parameter": "def f(self):\n    return getattr(self, '.own_self')\nloot = f(print)",
    "name of a placeholder": "loot = [c for c in (lambda: type(1)).__code__.co_consts]",
}


@pytest.mark.parametrize("payload", SHADOWING.values(), ids=SHADOWING)
def test_there_is_no_guard_to_shadow(attacks, payload):
    """Guards are constants of the code, not names."""
    attacks.holds(payload)


# Confusing what the guards take for the session's own.
SPOOFING = {
    "metaclass equality": (
        "import threading\nclass Own: pass\nclass M(type):\n    def __eq__(c, o): return True\n"
        "    def __hash__(c): return hash(Own)\nclass C(threading.Thread, metaclass=M): pass\nloot = C()._target"
    ),
    "metaclass equality by type()": (
        "class Own: pass\nM = type('M', (type,), {'__hash__': lambda c: hash(Own), '__eq__': lambda a, b: True})"
    ),
    "metaclass equality by an enum's metaclass": (
        "import enum\nM = type(enum.Enum)('M', (type,), {'__eq__': lambda a, b: True, '__hash__': lambda a: 1})"
    ),
    "class attribute": "class C: pass\nc = C(); c.__class__ = type(lambda: 0)\nloot = c.__globals__",
    "class property": "class C:\n    @property\n    def __class__(self): return type\nloot = type(C().__class__)",
    "class set by object": "class C: pass\nobject.__setattr__(C(), '__class__', int)",
    "class set by a slot": "class C: pass\nobject.__dict__['__class__'].__set__(C(), int)",
    "class descriptor": "loot = type.__dict__['__class__']",
    "bases replaced": "class A: pass\nclass B: pass\nA.__bases__ = (B,)",
    "bases by setattr": "import threading\nclass A: pass\nclass B: pass\nsetattr(A, '__bases__', (threading.Thread,))",
    "instance dict of a library object": "import threading\nloot = threading.Thread().__dict__['_target']",
    "instance dict by vars": "import threading\nloot = vars(threading.Thread())['_args'] or type",
    "instance dict by state": "import threading\nloot = threading.Lock and threading.Thread().__getstate__()['_target']",
    "class dict": "loot = int.__dict__",
    "live class dict by comparing": (
        "class Evil:\n    def __eq__(self, other): globals_[0] = other\nglobals_ = [0]\nclass A: pass\n"
        "A.__dict__ == Evil()\nglobals_[0]['__array_interface__'] = 1\n"
        "if not hasattr(A, '__array_interface__'): raise ValueError('a copy')"
    ),
    "live class dict by or": (
        "class Evil:\n    def __ror__(self, other): seen.append(other); return {}\nseen = []\nclass A: pass\n"
        "vars(A) | Evil()\nseen[0]['marker'] = 1\nif not hasattr(A, 'marker'): raise ValueError('a copy')"
    ),
    "fields of a dataclass": (
        "import dataclasses\n@dataclasses.dataclass\nclass A: x: int\nclass F:\n    name = '__class__'; init = True\n"
        "    _field_type = None\nA.__dataclass_fields__['y'] = F()\n"
        "if 'y' not in A.__dataclass_fields__: raise ValueError('a copy')"
    ),
    "fields of a dataclass by vars": (
        "import dataclasses\n@dataclasses.dataclass\nclass A: x: int\nvars(A)['__dataclass_fields__']['y'] = 1\n"
        "if len(dataclasses.fields(A)) == 1: raise ValueError('a copy')"
    ),
    "fake fields": "class A: __dataclass_fields__ = {}",
    "own wrapper": "def f(): pass\nf.__wrapped__ = print\nimport inspect\nloot = inspect.signature(f)",
    "wrapper of a library": "import functools, json\nloot = functools.wraps(json.dumps)(lambda: 0).__wrapped__.__globals__",
    "weak proxy of a generator": "import weakref\ng = (1 for _ in [0])\nloot = weakref.proxy(g).gi_frame",
    "generic alias of a generator": "import types\nloot = types.GenericAlias((1 for _ in [0]), ()).gi_frame",
    "bound method of a library": "import random\nloot = random.random.__self__._os",
    "simple namespace": "import types\nloot = types.SimpleNamespace(a=1).__reduce__()[0].__globals__",
    "property of a library": "import fractions\nloot = fractions.Fraction.numerator.fget.__globals__",
    "convert of an enum": (
        "import enum\nclass C(enum.Enum): A = 1\nloot = C._convert_('X', 'os', lambda n: n == 'system').system.value"
    ),
    "convert of an int enum": (
        "import enum\nclass C(enum.IntEnum): A = 1\n"
        "loot = getattr(C, '_convert_')('X', 'builtins', lambda n: n == 'eval').eval.value"
    ),
}


@pytest.mark.parametrize("payload", SPOOFING.values(), ids=SPOOFING)
def test_nothing_foreign_passes_for_the_sessions_own(attacks, payload):
    """Each payload raises: the confusion is noticed."""
    assert attacks.holds(payload) != "got nothing"
