# ruff: noqa: E501, RUF001 - cells are shown as they are run
"""Escapes: eval and format and getattr, in all their disguises; races; what LLM frameworks fell for."""

import pytest

# A payload that is stopped half-way leaves coroutines, files and threads behind.
pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]

REAL = {
    "eval": "loot = eval('__import__(\"os\")')",
    "exec": "exec('import os as loot')",
    "compile": "loot = compile('1', 'f', 'eval')",
    "eval by builtins": "loot = vars(__builtins__)['eval']"
    " if not isinstance(__builtins__, dict) else __builtins__['eval']",
    "eval by a default": "def f(e=eval): return e\nloot = f()",
    "eval by map": "loot = list(map(eval, ['type']))[0]",
    "eval by a decorator": "@lambda f: eval\ndef loot(): pass",
    "exec by a class": "class A: e = exec\nloot = A.e",
    "globals": "loot = globals()",
    "literal eval": "import ast\nloot = ast.literal_eval.__globals__",
    "annotations evaluated": (
        "import typing\ndef f(x: '__import__(\"os\")'): pass\n"
        "class A: __annotations__ = f.__annotations__\n"
        "loot = typing.ForwardRef('__import__(\"os\")')._evaluate({}, {}, **({'recursive_guard': frozenset()}))"
    ),
    "annotation hints": "import typing\ndef f(x: '__import__(\"os\").system'): pass\nloot = typing.get_type_hints(f)['x']",
    "annotation of a signature": (
        "import inspect\ndef f(x: '__import__(\"os\").system'): pass\n"
        "loot = inspect.signature(f, eval_str=True).parameters['x'].annotation"
    ),
    "dispatch on an annotation": (
        "import functools\ngot = []\n@functools.singledispatch\ndef f(x): pass\n"
        "def g(x: '[got.append(__import__(\"os\")), int][1]'): pass\nf.register(g)\nloot = got[0]"
    ),
    "timeit": "import timeit\ngot = []\ntimeit.timeit('got.append(__import__(\"os\"))', number=1, globals={'got': got})\nloot = got[0]",
    "doctest": "import doctest\nloot = doctest.sys",
    "namedtuple's verbose": "import collections\nloot = collections.namedtuple('A', 'x')._make.__func__.__globals__",
    "dataclass from text": (
        "import dataclasses\ngot = []\nclass A: pass\n"
        'A.__annotations__ = {\'x=__import__("sys").modules["__main__"], y\': int}\n'
        "try: dataclasses.dataclass(A)\nexcept Exception: loot = dataclasses.sys"
    ),
    "format to a method": "loot = '{0.__class__}'.format(int) and type(int)",
    "formatter": "import string\nloot = string.Formatter().get_field('0.__globals__', (string.capwords,), {})[0]",
    "formatter subclass": (
        "import string\nclass F(string.Formatter):\n    def format_field(self, v, s): got.append(v); return ''\n"
        "got = []\nF().format('{0.__globals__}', string.capwords)\nloot = got[0]"
    ),
    "format with a spy": (
        "class Spy:\n    def __format__(self, spec): return ''\n    def __getattr__(self, n): return n\n"
        "import string\nloot = string.Formatter().get_field('0.__globals__', (string.capwords,), {})[0]"
    ),
    "log format": (
        "import logging\nrecord = logging.makeLogRecord({'f': logging.log})\n"
        "logging.Formatter('{f.__globals__}', style='{', validate=False).format(record)\nloot = logging.log.__globals__"
    ),
    "getattr by vars": "loot = vars(type(lambda: 0))['__globals__'].__get__(lambda: 0)",
    "getattr by a super proxy": "loot = super(type(lambda: 0), (lambda: 0)).__getattribute__('__class__').__globals__ if False else (lambda: 0).__globals__",
    "getattr by reduce": "import functools\nloot = functools.reduce(getattr, ['__class__', '__class__'], 1)",
    "getattr by partial": "import functools\nloot = functools.partial(getattr, lambda: 0)('__globals__')",
    "getattr by map": "loot = list(map(getattr, [lambda: 0], ['__globals__']))[0]",
    "getattr by sorted": "f = lambda: 0\ngot = []\nsorted(['__globals__'], key=lambda n: got.append(getattr(f, n)) or 0)\nloot = got[0]",
    "getattr by a class method": "class A: g = getattr\nloot = A.g(lambda: 0, '__globals__')",
    "getattr by object": "loot = object.__getattribute__(lambda: 0, '__globals__')",
    "getattr by type": "loot = type(lambda: 0).__getattribute__((lambda: 0), '__globals__')",
    "getattr by method wrapper": "loot = (lambda: 0).__getattribute__('__globals__')",
    "static getattr": "import inspect\nloot = inspect.getattr_static(int, '__class__') and type(int)",
    "members": "import inspect\nloot = dict(inspect.getmembers(lambda: 0))['__globals__']",
    "unicode name": "loot = (lambda: 0).__ｇlobals__",
    "unicode name of a builtin": "loot = 𝓮val",
    "name from bytes": "loot = getattr(lambda: 0, bytes([95, 95, 103, 108, 111, 98, 97, 108, 115, 95, 95]).decode())",
    "name from a slice": "loot = getattr(lambda: 0, '__slabolg__'[::-1])",
    "own __getattr__ as a relay": (
        "class R:\n    def __getattr__(self, n): return getattr(lambda: 0, n)\nloot = R().__globals__"
    ),
    "property as a relay": ("class R:\n    x = property(lambda self: (lambda: 0).__globals__)\nloot = R().x"),
    "operator.attrgetter": "import operator\nloot = operator.attrgetter('__globals__')(lambda: 0)",
    "smolagents: dunder by getattr": "loot = getattr(getattr((), '__class__'), '__base__') and getattr(print, '__self__')",
    "smolagents: import by a trusted module": "import random\nloot = random._os.system",
    "smolagents: queue to os": "import queue\nloot = queue.threading._os if hasattr(queue.threading, '_os') else queue.threading",
    "langchain: import in an expression": "loot = __import__('os').system",
    "langchain: pal chain": "def solution():\n    import os\n    return os.system\nloot = solution()",
    "llamaindex: subclasses by index": "loot = ().__class__.__bases__[0].__subclasses__()[0].__class__",
    "pandasai: builtins by a class": "loot = [c for c in ().__class__.__base__.__subclasses__() if c.__name__ == 'catch_warnings'][0]()._module",
    "n8n: exception frame": "try: raise ValueError\nexcept ValueError as e: loot = e.__traceback__.tb_frame.f_back",
    "n8n: object of an attribute error": ("import json\ntry: json.nothing\nexcept AttributeError as e: loot = e.obj"),
    "asteval: format": "loot = '{0.__class__}'.format(1) and (lambda: 0).__globals__",
    "asteval: numpy-like attribute": "import json\nloot = json.__spec__.loader.get_code('json')",
    "simpleeval: string mod": "loot = ('%s' % (lambda: 0)) and (lambda: 0).__globals__",
    "jinja: cycler": "import functools\nloot = functools.partial.__init__.__class__ and functools.wraps.__globals__",
    "pyjail: breakpoint": "loot = breakpoint.__self__",
    "pyjail: help": "loot = help.__class__.__call__.__globals__",
    "pyjail: license": "loot = license.__class__.__init__.__globals__",
    "pyjail: exit": "loot = exit.__class__.__init__.__globals__",
    "pyjail: decorator without parentheses": "@lambda f: getattr.__self__\ndef loot(): pass",
    "pyjail: class getitem": "class A: __class_getitem__ = eval\nloot = A['type']",
    "pyjail: operator overload": "class A: __add__ = lambda s, o: eval(o)\nloot = A() + 'type'",
    "pyjail: missing": "class D(dict): __missing__ = lambda s, k: eval(k)\nloot = D()['type']",
    "pyjail: set name": (
        "class N:\n    def __set_name__(self, owner, name): owner.loot = eval('type')\nclass A: n = N()\nloot = A.loot"
    ),
    "pyjail: init subclass": (
        "class A:\n    def __init_subclass__(c): c.loot = eval('type')\nclass B(A): pass\nloot = B.loot"
    ),
    "pyjail: del": "got = []\nclass A:\n    def __del__(self): got.append(eval('type'))\na = A()\ndel a\nloot = got[0]",
    "pyjail: f-string": "loot = f'{(l := (lambda: 0).__globals__)}' and l",
    "pyjail: walrus": "[l := (lambda: 0).__globals__]\nloot = l",
    "pyjail: lambda default": "loot = (lambda g=(lambda: 0).__globals__: g)()",
    "pyjail: comprehension": "loot = [f.__globals__ for f in [lambda: 0]][0]",
    "pyjail: import error's name": "try: import os.nothing\nexcept ImportError as e: loot = e.__traceback__.tb_frame",
    "pyjail: stdin": "import sys\nloot = sys.stdin.buffer.__class__ and sys.modules['os']",
}


@pytest.mark.parametrize("payload", REAL.values(), ids=REAL)
def test_a_payload_that_evaluates_or_reads_its_way_out_gets_nothing(attacks, payload):
    """Each works without the wall and holds behind it."""
    assert attacks.works_without_wall(payload)
    attacks.holds(payload)


RACES = {
    "parameter": (
        "def read(x):\n    for _ in range(2000):\n        try: got.append(x._started)\n        except AttributeError: pass\n"
        "        x = [own, foreign][_ % 2]"
    ),
    "nonlocal": (
        "def read(x):\n    def swap():\n        nonlocal x\n        for i in range(2000): x = [own, foreign][i % 2]\n"
        "    t = threading.Thread(target=swap); t.start()\n"
        "    for _ in range(2000):\n        try: got.append(x._started)\n        except AttributeError: pass\n    t.join()"
    ),
    "global": (
        "x = None\ndef swap():\n    global x\n    for i in range(2000): x = [own, foreign][i % 2]\n"
        "def read(y):\n    t = threading.Thread(target=swap); t.start()\n"
        "    for _ in range(2000):\n        try: got.append(x._started)\n        except AttributeError: pass\n    t.join()"
    ),
    "generator": (
        "def read(x):\n    values = (x._started for x in [own, foreign] * 500)\n    while True:\n"
        "        try: got.append(next(values))\n        except AttributeError: continue\n        except StopIteration: break"
    ),
    "name": (
        "n = '_own'\ndef swap():\n    global n\n    for i in range(2000): n = ['_own', '_started'][i % 2]\n"
        "def read(y):\n    t = threading.Thread(target=swap); t.start()\n"
        "    for _ in range(2000):\n        try: got.append(getattr(foreign, n))\n        except AttributeError: pass\n    t.join()"
    ),
}


@pytest.mark.parametrize("reader", RACES.values(), ids=RACES)
def test_changing_a_variable_between_check_and_use_gets_nothing(session, reader):
    """The value that is checked is the value that is used."""
    session.run(f"""
import threading
class Own: _started = "own"; _own = "own"
own, foreign, got = Own(), threading.Thread(target=print), []
{reader}
read(own)
""")
    assert set(session.namespace["got"]) <= {"own"}
