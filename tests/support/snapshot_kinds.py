"""Kinds of values: the cell that makes one, and what must be true of it before a snapshot and after."""
# ruff: noqa: E501

from __future__ import annotations

KINDS: dict[str, tuple[str, str]] = {
    # values of the interpreter
    "none": ("v1 = None", "v1 is None"),
    "bool": ("v2 = True", "v2 is True"),
    "big integer": ("v3 = 2**300 + 1", "v3 == 2**300 + 1"),
    "float": ("v4 = [0.1, float('inf'), -0.0]", "repr(v4) == '[0.1, inf, -0.0]'"),
    "complex": ("v5 = 1 + 2j", "v5 == 1 + 2j"),
    "text": ("v6 = 'ä\\U0001f600\\ud800'", "v6 == 'ä\\U0001f600\\ud800'"),
    "bytes": ("v7 = b'\\0\\xff'", "v7 == b'\\0\\xff'"),
    "bytearray": ("v8 = bytearray(b'abc')", "v8 == bytearray(b'abc') and type(v8) is bytearray"),
    "memoryview": ("v9 = memoryview(b'abc')", "bytes(v9) == b'abc'"),
    "list": ("v10 = [1, [2, [3]]]", "v10 == [1, [2, [3]]]"),
    "tuple": ("v11 = (1, (2,))", "v11 == (1, (2,))"),
    "dict": ("v12 = {1: 'a', (2,): {'b': None}}", "v12 == {1: 'a', (2,): {'b': None}}"),
    "set": ("v13 = {1, 'a', (2,)}", "v13 == {1, 'a', (2,)}"),
    "frozenset": ("v14 = frozenset([1, 2])", "v14 == frozenset([1, 2])"),
    "range": ("v15 = range(1, 10, 3)", "v15 == range(1, 10, 3)"),
    "slice": ("v16 = slice(1, None, 2)", "v16 == slice(1, None, 2)"),
    "ellipsis": ("v17 = [..., NotImplemented]", "v17[0] is ... and v17[1] is NotImplemented"),
    "two names": ("v18 = [1]; v18b = v18", "v18 is v18b"),
    "cycle": ("v19 = [1]; v19.append(v19)", "v19[1] is v19"),
    "list iterator": ("v20 = iter([1, 2, 3]); next(v20)", "next(v20) == 2"),
    "count": ("import itertools; v21 = itertools.count(5)", "next(v21) == 5"),
    "zip": ("v22 = zip([1, 2], 'ab')", "list(v22) == [(1, 'a'), (2, 'b')]"),
    "map": ("v23 = map(lambda x: x + 1, [1])", "list(v23) == [2]"),
    "built-in function": ("v24 = [len, print, int]", "v24[0]('ab') == 2 and v24[2] is int"),
    "bound method": ("v25 = [].append", "v25(1) is None"),
    "type": ("v26 = {'k': dict, 'n': type(None)}", "v26['k'] is dict and v26['n'] is type(None)"),
    # modules and functions
    "module": ("import math", "math.floor(1.5) == 1"),
    "module function": ("from math import floor as v28", "v28(2.5) == 2"),
    "function": ("def v29(a, b=2): return a + b", "v29(1) == 3"),
    "lambda": ("v30 = lambda x: x * 2", "v30(2) == 4"),
    "function in a block": ("if True:\n    def v31(): return 1", "v31() == 1"),
    "function in a try": ("try:\n    def v32(): return 1\nexcept ValueError: pass", "v32() == 1"),
    "closure": ("def make33(n):\n    def inner(): return n\n    return inner\nv33 = make33(7)", "v33() == 7"),
    "recursive closure": (
        "def make34():\n    def f(n): return n if n < 2 else f(n - 1) + f(n - 2)\n    return f\nv34 = make34()",
        "v34(10) == 55",
    ),
    "decorated": (
        (
            "import functools\ndef twice35(f):\n    @functools.wraps(f)\n    def both(*a): return f(*a) * 2\n    return both\n"
            "@twice35\ndef v35(x): return x"
        ),
        "v35(2) == 4 and v35.__name__ == 'v35'",
    ),
    "cache": ("import functools\n@functools.lru_cache(maxsize=3)\ndef v36(x): return x + 1", "v36(1) == 2"),
    "partial": ("import functools\nv37 = functools.partial(int, base=2)", "v37('11') == 3"),
    "generator function": ("def v38():\n    yield 1", "list(v38()) == [1]"),
    "coroutine function": ("async def v39(): return 1", "await v39() == 1"),
    "context manager": (
        "import contextlib\n@contextlib.contextmanager\ndef v40():\n    yield 5",
        "v40().__enter__() == 5",
    ),
    "singledispatch": (
        "import functools\n@functools.singledispatch\ndef v41(x): return 'o'\n@v41.register\ndef _(x: int): return 'i'",
        "v41(1) == 'i' and v41('') == 'o'",
    ),
    "registered": (
        "found42 = {}\ndef reg42(f):\n    found42[f.__name__] = f\n    return f\n@reg42\ndef v42(): return 1",
        "found42['v42'] is v42 and v42() == 1",
    ),
    "attribute of a function": ("def v43(): pass\nv43.calls = [1]", "v43.calls == [1]"),
    "mutable default": ("def v44(x, seen=[]):\n    seen.append(x)\n    return seen\nv44(1)", "v44(2) == [1, 2]"),
    "annotations": ("def v45(x: int) -> 'str': 'doc'", "v45.__annotations__['x'] is int and v45.__doc__ == 'doc'"),
    "itemgetter": ("import operator\nv46 = operator.itemgetter(1)", "v46([1, 2]) == 2"),
    # classes
    "class": ("class V47:\n    def f(self): return 1", "V47().f() == 1"),
    "object": ("class V48:\n    def __init__(self): self.x = [1]\nv48 = V48()", "v48.x == [1] and type(v48) is V48"),
    "private": (
        "class V49:\n    def __init__(self): self._x = 1\n    def get(self): return self._x\nv49 = V49()",
        "v49.get() == 1",
    ),
    "slots": ("class V50:\n    __slots__ = ('x',)\nv50 = V50(); v50.x = 1", "v50.x == 1"),
    "property": ("class V51:\n    @property\n    def p(self): return 3\nv51 = V51()", "v51.p == 3"),
    "inheritance": (
        "class A52:\n    def f(self): return 1\nclass B52(A52):\n    def f(self): return super().f() + 1\nv52 = B52()",
        "v52.f() == 2 and isinstance(v52, A52)",
    ),
    "class attribute": ("class V53:\n    items = []\nV53.items.append(1)", "V53.items == [1]"),
    "dict subclass": ("class V54(dict): pass\nv54 = V54(a=1); v54.t = 2", "v54['a'] == 1 and v54.t == 2"),
    "dataclass": (
        "import dataclasses\n@dataclasses.dataclass\nclass V55:\n    x: int\n    y: list = dataclasses.field(default_factory=list)\nv55 = V55(1)",
        "v55 == V55(1) and repr(v55) == 'V55(x=1, y=[])'",
    ),
    "frozen dataclass": (
        "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass V56:\n    x: int\nv56 = {V56(1): 2}",
        "v56[V56(1)] == 2",
    ),
    "namedtuple": (
        "import collections\nV57 = collections.namedtuple('V57', 'x y')\nv57 = V57(1, 2)",
        "v57.x == 1 and v57._replace(x=3) == V57(3, 2)",
    ),
    "typed namedtuple": (
        "import typing\nclass V58(typing.NamedTuple):\n    x: int\n    y: int = 2\nv58 = V58(1)",
        "v58 == (1, 2) and V58(3).y == 2",
    ),
    "enumeration": ("import enum\nclass V59(enum.Enum):\n    A = 1\nv59 = V59.A", "v59 is V59.A and V59(1) is v59"),
    "flags": ("import enum\nclass V60(enum.IntFlag):\n    A = 1\n    B = 2\nv60 = V60.A | V60.B", "v60 == 3"),
    "abstract": (
        "import abc\nclass A61(abc.ABC):\n    @abc.abstractmethod\n    def f(self): ...\nclass V61(A61):\n    def f(self): return 1\nv61 = V61()",
        "v61.f() == 1",
    ),
    "protocol": (
        "import typing\n@typing.runtime_checkable\nclass P62(typing.Protocol):\n    def f(self): ...\nclass V62:\n    def f(self): return 1\nv62 = V62()",
        "isinstance(v62, P62)",
    ),
    "generic": (
        "import typing\nT63 = typing.TypeVar('T63')\nclass V63(typing.Generic[T63]):\n    x = 1\nv63 = V63[int]()",
        "v63.x == 1 and V63[int] is not None",
    ),
    "typed dict": ("import typing\nv64 = list[int] | None", "v64 == (list[int] | None)"),
    "exception class": (
        "class V65(Exception):\n    def __init__(self, a, b): super().__init__(a); self.b = b\nv65 = V65(1, 2)",
        "v65.args == (1,) and v65.b == 2",
    ),
    "exception": ("try: 1 / 0\nexcept ZeroDivisionError as e: v66 = e", "v66.args == ('division by zero',)"),
    "file not found": ("v67 = FileNotFoundError(2, 'no', 'x')", "v67.filename == 'x' and v67.errno == 2"),
    "metaclass": (
        "class M68(type):\n    def __call__(cls): return super().__call__()\nclass V68(metaclass=M68): pass\nv68 = V68()",
        "type(V68) is M68 and type(v68) is V68",
    ),
    # the standard library
    "counter": ("import collections\nv69 = collections.Counter('aab')", "v69.most_common(1) == [('a', 2)]"),
    "ordered dict": ("import collections\nv70 = collections.OrderedDict(a=1)", "v70 == collections.OrderedDict(a=1)"),
    "defaultdict": (
        "import collections\nv71 = collections.defaultdict(list, a=[1])",
        "v71['b'] == [] and v71['a'] == [1]",
    ),
    "defaultdict of a lambda": ("import collections\nv72 = collections.defaultdict(lambda: 7)", "v72['b'] == 7"),
    "deque": (
        "import collections\nv73 = collections.deque([1, 2], maxlen=3)",
        "v73.maxlen == 3 and list(v73) == [1, 2]",
    ),
    "chain map": ("import collections\nv74 = collections.ChainMap({'a': 1}, {'b': 2})", "v74['b'] == 2"),
    "decimal": ("import decimal\nv75 = decimal.Decimal('1.10')", "str(v75) == '1.10'"),
    "fraction": ("import fractions\nv76 = fractions.Fraction(1, 3)", "v76 * 3 == 1"),
    "uuid": ("import uuid\nv77 = uuid.UUID(int=5)", "v77.int == 5"),
    "date": (
        "import datetime\nv78 = [datetime.date(2026, 1, 2), datetime.timedelta(1, 2, 3)]",
        "v78[0].year == 2026 and v78[1].microseconds == 3",
    ),
    "zoned datetime": (
        "import datetime, zoneinfo\nv79 = datetime.datetime(2026, 7, 1, tzinfo=zoneinfo.ZoneInfo('Europe/Berlin'))",
        "v79.isoformat() == '2026-07-01T00:00:00+02:00'",
    ),
    "utc": (
        "import datetime\nv80 = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)",
        "v80.tzinfo is datetime.timezone.utc",
    ),
    "offset": ("import datetime\nv81 = datetime.timezone(datetime.timedelta(hours=1), 'X')", "v81.tzname(None) == 'X'"),
    "pattern": ("import re\nv82 = re.compile('A(b)', re.I)", "v82.match('ab').group(1) == 'b'"),
    "match": ("import re\nv83 = re.search('b(.)', 'abc')", "v83.group(1) == 'c' and v83.span() == (1, 3)"),
    "text stream": ("import io\nv84 = io.StringIO(); v84.write('abc'); v84.seek(1)", "v84.read() == 'bc'"),
    "byte stream": ("import io\nv85 = io.BytesIO(b'abc')", "v85.read() == b'abc'"),
    "random": (
        "import random\nv86 = random.Random(5); v86.random(); next86 = random.Random(5); next86.random()",
        "v86.random() == next86.random()",
    ),
    "lock": ("import threading\nv87 = threading.Lock()", "v87.acquire(blocking=False) is True"),
    "queue": ("import queue\nv88 = queue.Queue(); v88.put(1)", "v88.get() == 1"),
    "namespace": ("import types\nv89 = types.SimpleNamespace(a=1)", "v89.a == 1"),
    "weak reference": ("import weakref\nclass T90: pass\nt90 = T90()\nv90 = weakref.ref(t90)", "v90() is t90"),
    "element": (
        "import xml.etree.ElementTree as ET\nv91 = ET.fromstring('<a x=\"1\"><b>t</b></a>')",
        "v91.find('b').text == 't' and v91.get('x') == '1'",
    ),
    "array": ("import array\nv92 = array.array('d', [1.5])", "v92[0] == 1.5"),
    "text of 100 MB": ("v93 = 'x' * 100_000_000", "len(v93) == 100_000_000"),
    "bytes of 200 MB": ("v94 = b'x' * 200_000_000", "len(v94) == 200_000_000"),
}
"""What a session holds under the policy `default`."""
DATA: dict[str, tuple[str, str]] = {
    "numpy": ("import numpy as np\nd1 = np.arange(6).reshape(2, 3)", "d1.tolist() == [[0, 1, 2], [3, 4, 5]]"),
    "numpy view": (
        "import numpy as np\nd2 = np.arange(10)\nd2b = d2[2:5]",
        "d2b.base is d2 and d2b.tolist() == [2, 3, 4]",
    ),
    "numpy objects": ("import numpy as np\nd3 = np.array([{'a': 1}, None], dtype=object)", "d3[0] == {'a': 1}"),
    "numpy masked": ("import numpy as np\nd4 = np.ma.array([1, 2], mask=[0, 1])", "d4.sum() == 1"),
    "numpy scalar": (
        "import numpy as np\nd5 = [np.float32(1.5), np.bool_(True), np.datetime64('2026-01-01')]",
        "type(d5[0]) is np.float32 and d5[0] == 1.5",
    ),
    "numpy generator": (
        "import numpy as np\nd6 = np.random.default_rng(1); d6.random(); d6b = np.random.default_rng(1); d6b.random()",
        "d6.random() == d6b.random()",
    ),
    "numpy dtype": ("import numpy as np\nd7 = np.dtype([('a', 'i4'), ('b', 'f8')])", "d7.names == ('a', 'b')"),
    "numpy fortran": (
        "import numpy as np\nd8 = np.asfortranarray(np.eye(3)); d8.flags.writeable = False",
        "d8.flags.f_contiguous and not d8.flags.writeable and d8[1, 1] == 1",
    ),
    "numpy of 300 MB": ("import numpy as np\nd9 = np.zeros(40_000_000)", "d9.shape == (40_000_000,)"),
    "frame": (
        "import pandas as pd\np1 = pd.DataFrame({'a': [1, 2], 'b': ['x', None], 'c': [1.5, 2.5]})",
        "p1['a'].sum() == 3 and p1['b'][0] == 'x' and list(p1.columns) == ['a', 'b', 'c']",
    ),
    "frame with an index": (
        "import pandas as pd\np2 = pd.DataFrame({'a': [1, 2]}, index=pd.date_range('2026-01-01', periods=2, freq='D', name='day'))",
        "p2.index.freqstr == 'D' and p2.index.name == 'day'",
    ),
    "multi-index": (
        "import pandas as pd\np3 = pd.DataFrame({'a': [1, 2]}, index=pd.MultiIndex.from_tuples([('x', 1), ('y', 2)], names=['k', 'n']))",
        "p3.loc[('y', 2), 'a'] == 2 and list(p3.index.names) == ['k', 'n']",
    ),
    "series": (
        "import pandas as pd\np4 = pd.Series([1, 2], name='s', index=['a', 'b'])",
        "p4['b'] == 2 and p4.name == 's'",
    ),
    "categorical": (
        "import pandas as pd\np5 = pd.Series(['a', 'b', 'a']).astype('category')",
        "p5.cat.categories.tolist() == ['a', 'b'] and p5.tolist() == ['a', 'b', 'a']",
    ),
    "nullable": ("import pandas as pd\np6 = pd.Series([1, None], dtype='Int64')", "p6[0] == 1 and p6[1] is pd.NA"),
    "zoned times": (
        "import pandas as pd\np7 = pd.Series(pd.to_datetime(['2026-07-01'])).dt.tz_localize('Europe/Berlin')",
        "str(p7[0]) == '2026-07-01 00:00:00+02:00'",
    ),
    "intervals": (
        "import pandas as pd\np8 = pd.cut(pd.Series([1, 2, 3]), 2)",
        "p8.cat.categories.size == 2 and p8.isna().sum() == 0",
    ),
    "period": (
        "import pandas as pd\np9 = [pd.Period('2026-01', 'M'), pd.period_range('2026-01', periods=2, freq='M')]",
        "str(p9[0]) == '2026-01' and len(p9[1]) == 2",
    ),
    "timestamp": (
        "import pandas as pd\np10 = [pd.Timestamp('2026-01-01', tz='UTC'), pd.Timedelta('1h'), pd.NaT, pd.Interval(0, 1)]",
        "p10[0].year == 2026 and p10[1].seconds == 3600 and p10[2] is pd.NaT and 1 in p10[3]",
    ),
    "groupby": (
        "import pandas as pd\np11 = pd.DataFrame({'k': [1, 1, 2], 'v': [1, 2, 3]}).groupby('k')",
        "p11['v'].sum().tolist() == [3, 3]",
    ),
    "in a dict": (
        "import pandas as pd\np12 = {'f': pd.DataFrame({'a': [1]}), 'n': [pd.Index(['x'])]}",
        "p12['f']['a'][0] == 1 and p12['n'][0][0] == 'x'",
    ),
    "shared frame": ("import pandas as pd\np13 = pd.DataFrame({'a': [1]}); p13b = [p13]", "p13b[0] is p13"),
    "arrow table": (
        "import pyarrow as pa\na1 = pa.table({'a': [1, 2], 'b': ['x', None]})",
        "a1.column('b').to_pylist() == ['x', None]",
    ),
    "arrow batch": ("import pyarrow as pa\na2 = pa.RecordBatch.from_pydict({'a': [1]})", "a2.num_rows == 1"),
    "range index": (
        "import pandas as pd\np14 = pd.RangeIndex(1, 9, 2, name='r')",
        "list(p14) == [1, 3, 5, 7] and p14.name == 'r'",
    ),
    "object column": ("import pandas as pd\np15 = pd.DataFrame({'o': [{'a': 1}, [2]]})", "p15['o'][0] == {'a': 1}"),
}
"""What a session holds under the policy `data`, besides."""
