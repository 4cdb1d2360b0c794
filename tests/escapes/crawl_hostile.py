"""The session's side of the crawler: source text of hostile classes, and of the steps that use them.

All of it is compiled by the wall, block by block: what the wall refuses to compile a session cannot do either, and the
crawler goes on without that block. ``note`` keeps what a hostile method was handed.
"""

from __future__ import annotations

import re
from typing import Final

_OPERATORS: Final = (
    "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift radd rsub rmul rtruediv rfloordiv rmod rpow "
    "rmatmul rand ror rxor iadd ior divmod rdivmod contains getitem"
).split()
_COMPARISONS: Final = ("eq", "ne", "lt", "le", "gt", "ge")
_ARRAYS: Final = (
    "array array_ufunc array_function array_wrap array_prepare array_finalize dataframe arrow_array arrow_c_stream "
    "arrow_c_array dlpack dlpack_device array_namespace"
).split()
# What classes may define beside operators: each is asked for by something, somewhere.
_PROTOCOLS: Final = (
    "getattr get set delete set_name delattr setattr copy deepcopy getstate setstate getnewargs format enter exit "
    "class_getitem init_subclass subclasshook instancecheck subclasscheck mro_entries prepare missing reversed "
    "length_hint round trunc floor ceil aenter aexit aiter anext await fspath call iter next reduce_ex buffer "
    "index int float bytes hash bool str repr dir sizeof reduce post_init del getattribute eq"
).split()


def _methods(names: list[str] | tuple[str, ...], result: str) -> str:
    return "\n".join(
        f"    def __{name}__(self=None, *a, **k):\n        note('{name}', self, *a, *k.values())\n"
        f"        return {result}"
        for name in names
    )


PRELUDE: Final = """
# LENT_getattr, LENT_type and LENT_eval are Python's own builtins, however a session has come by them.
KEPT = []
def note(label, *handed):
    KEPT.extend(handed)
"""
"""What a script needs that runs without the crawler."""

BLOCKS: Final[dict[str, str]] = {
    "Recorder": """
class Recorder:
    def __init__(self, *a, **k):
        self.left = 3
    def __getattr__(self, name):
        note('getattr', name)
        if name.startswith('__') and name not in ('__dict__', '__wrapped__', '__call__', '__name__'):
            raise AttributeError(name)
        return Recorder()
    def __call__(self, *a, **k):
        note('call', *a, *k.values())
        return a[0] if a else Recorder()
    def __iter__(self):
        return self
    def __next__(self):
        self.left -= 1
        if self.left < 0:
            raise StopIteration
        return Recorder()
    def __len__(self):
        return 3
    def __getitem__(self, key):
        note('getitem', key)
        if key == 3:
            raise IndexError(key)
        return Recorder()
""",
    "Asked": """
class Asked:
    def __getattribute__(self, name):
        note('getattribute', name)
        return Recorder()
""",
    "Lies": """
class Lies:
    def __getattribute__(self, name):
        note('getattribute', name)
        lies = {'__class__': int, '__dict__': Equal(), '__wrapped__': Answers(), '__mro__': (Lies, object)}
        return lies.get(name, type)
""",
    "LiesOf": """
class LiesOf:
    def __init__(self, target=None):
        target_of.append(target)
    def __getattribute__(self, name):
        note('getattribute', name)
        return target_of[-1]
target_of = []
""",
    "Equal": "class Equal:\n" + _methods(_COMPARISONS, "True") + "\n    def __hash__(self):\n        return 0",
    "Reflects": "class Reflects:\n" + _methods([*_OPERATORS, *_COMPARISONS], "Recorder()") + "\n    __hash__ = None",
    "Arrays": "class Arrays:\n" + _methods(_ARRAYS, "Recorder()"),
    "Answers": """
class Answers:
    left = 2
    def __iter__(self):
        note('iter')
        return iter([Equal(), 'x', self])
    def __len__(self):
        return 2
    def __index__(self):
        note('index')
        return 1
    def __int__(self):
        return 1
    def __float__(self):
        return 1.0
    def __bool__(self):
        return True
    def __str__(self):
        return 'x'
    def __format__(self, spec):
        note('format', spec)
        return 'x'
    def __fspath__(self):
        return OUTSIDE
    def __enter__(self):
        return self
    def __exit__(self, kind, error, trace):
        note('exit', kind, error, trace)
        return True
    def __getitem__(self, key):
        note('getitem', key)
        return ('x', 1)[key] if type(key) is int else 'x'
    def __call__(self, *a, **k):
        note('call', *a, *k.values())
        return a[-1] if a else self
    def __hash__(self):
        return 1
""",
    "Mapping": """
class Mapping:
    names = ['__dict__', '__class__', '__wrapped__', 'x', '_x']
    def keys(self):
        return list(self.names)
    def items(self):
        return [(name, Recorder()) for name in self.names]
    def values(self):
        return [Recorder() for name in self.names]
    def get(self, key, default=None):
        note('get', key, default)
        return default
    def update(self, *a, **k):
        note('update', *a, *k.values())
    def setdefault(self, key, default=None):
        note('setdefault', key, default)
        return default
    def copy(self):
        return self
    def pop(self, *a):
        note('pop', *a)
        return Recorder()
    def __getitem__(self, key):
        note('getitem', key)
        return Recorder()
    def __setitem__(self, key, value):
        note('setitem', key, value)
    def __contains__(self, key):
        note('contains', key)
        return True
    def __len__(self):
        return 5
    def __iter__(self):
        return iter(self.names)
""",
    "Text": """
class Text(str):
    def __eq__(self, other):
        note('eq', other)
        return True
    def __ne__(self, other):
        return False
    def __hash__(self):
        return str.__hash__(self)
    def __str__(self):
        note('str')
        return self
    def __contains__(self, other):
        note('contains', other)
        return True
    def __getitem__(self, key):
        note('getitem', key)
        return self
    def split(self, *a):
        note('split', *a)
        return [self]
    def startswith(self, *a):
        note('startswith', *a)
        return False
    def encode(self, *a):
        return b'x'
    def isidentifier(self):
        return True
class TextAsked(str):
    def __getattribute__(self, name):
        note('getattribute', name)
        return str.__getattribute__(self, name)
""",
    "Number": """
class Number(int):
    def __eq__(self, other):
        note('eq', other)
        return True
    def __hash__(self):
        return 1
    def __lt__(self, other):
        note('lt', other)
        return True
    def __and__(self, other):
        note('and', other)
        return other
    def __index__(self):
        return Number(1)
    def __radd__(self, other):
        note('radd', other)
        return other
class NumberAsked(int):
    def __getattribute__(self, name):
        note('getattribute', name)
        return int.__getattribute__(self, name)
""",
    "Items": """
class Items(list):
    def __iter__(self):
        note('iter', self)
        return iter(['x', Recorder()])
    def __getitem__(self, key):
        note('getitem', key)
        return Recorder()
    def __contains__(self, key):
        note('contains', key)
        return True
    def append(self, value):
        note('append', value)
    def extend(self, value):
        note('extend', value)
    def __eq__(self, other):
        note('eq', other)
        return True
    __hash__ = None
""",
    "Table": """
class Table(dict):
    def __getitem__(self, key):
        note('getitem', key)
        return Recorder()
    def __missing__(self, key):
        note('missing', key)
        return Recorder()
    def __contains__(self, key):
        note('contains', key)
        return True
    def get(self, key, default=None):
        note('get', key, default)
        return Recorder()
    def update(self, *a, **k):
        note('update', *a, *k.values())
    def items(self):
        note('items')
        return [('x', Recorder())]
    def __eq__(self, other):
        note('eq', other)
        return True
    __hash__ = None
""",
    "File": """
class File:
    name = 'x'
    mode = 'rb'
    closed = False
    encoding = 'utf-8'
    def read(self, *a):
        note('read', *a)
        return b''
    def readline(self, *a):
        note('readline', *a)
        return ''
    def readinto(self, buffer):
        note('readinto', buffer)
        return 0
    def write(self, data):
        note('write', data)
        return 1
    def seek(self, *a):
        return 0
    def tell(self):
        return 0
    def flush(self):
        pass
    def close(self):
        note('close')
    def fileno(self):
        return 1
    def readable(self):
        return True
    writable = seekable = isatty = readable
    def __iter__(self):
        return iter([b'x'])
    def __enter__(self):
        return self
    def __exit__(self, *a):
        note('exit', *a)
""",
    "Descriptor": """
class Descriptor:
    def __get__(self, obj, cls=None):
        note('get', obj, cls)
        return Recorder()
    def __set__(self, obj, value):
        note('set', obj, value)
    def __delete__(self, obj):
        note('delete', obj)
    def __set_name__(self, owner, name):
        note('set_name', owner, name)
""",
    "Raises": """
class Boom(Exception):
    pass
class Raises:
    def __getattr__(self, name):
        raise Boom(self, name)
    def __call__(self, *a, **k):
        note('call', *a, *k.values())
        raise Boom(*a)
    def __iter__(self):
        raise Boom(self)
    def __eq__(self, other):
        note('eq', other)
        raise Boom(other)
    __hash__ = None
    def __index__(self):
        raise Boom(self)
    def __str__(self):
        raise Boom(self)
""",
    "Meta": """
class Meta(type):
    def __call__(cls, *a, **k):
        note('meta call', cls, *a)
        return Recorder()
    def __iter__(cls):
        return iter([cls, 'x'])
    def __getitem__(cls, key):
        note('meta getitem', key)
        return cls
    def __instancecheck__(cls, value):
        note('instancecheck', value)
        return True
    def __subclasscheck__(cls, value):
        note('subclasscheck', value)
        return True
    def __getattr__(cls, name):
        note('meta getattr', name)
        return Recorder()
    def __or__(cls, other):
        note('meta or', other)
        return cls
    __ror__ = __or__
class Ruled(metaclass=Meta):
    pass
""",
    "Hooks": """
class Hooks:
    def __init_subclass__(cls, *a, **k):
        note('init_subclass', cls, *a, *k.values())
    def __class_getitem__(cls, key):
        note('class_getitem', cls, key)
        return cls
    def __mro_entries__(self, bases):
        note('mro_entries', bases)
        return (Hooks,)
""",
    "Entries": """
class Entries:
    def __init__(self, *entries):
        self.entries = entries
    def __mro_entries__(self, bases):
        note('mro_entries', bases)
        return self.entries
""",
    "Base": """
import abc
class Base(abc.ABC):
    @classmethod
    def __subclasshook__(cls, other):
        note('subclasshook', cls, other)
        return NotImplemented
""",
    "Giver": """
class Giver:
    def __init__(self, thing=None):
        self.thing = thing
    def __call__(self, *a, **k):
        note('call', *a, *k.values())
        return self.thing
    def __iter__(self):
        return iter([self.thing])
    def __getitem__(self, key):
        note('getitem', key)
        return self.thing
    def __getattr__(self, name):
        note('getattr', name)
        return self.thing
    def __enter__(self):
        return self.thing
    def __exit__(self, *a):
        note('exit', *a)
    def __mro_entries__(self, bases):
        return (self.thing,)
    def __get__(self, obj, cls=None):
        note('get', obj, cls)
        return self.thing
    def __eq__(self, other):
        note('eq', other)
        return self.thing
    def __hash__(self):
        return 2
    def __radd__(self, other):
        note('radd', other)
        return self.thing
    def __ror__(self, other):
        note('ror', other)
        return self.thing
""",
    "Keeps": """
class Keeps:
    def __setattr__(self, name, value):
        note('setattr', name, value)
    def __delattr__(self, name):
        note('delattr', name)
    def __getattr__(self, name):
        note('getattr', name)
        if name.startswith('__') and name != '__dict__':
            raise AttributeError(name)
        return Mapping()
    def __call__(self, *a, **k):
        note('call', *a, *k.values())
""",
    "Lends": """
class Lends:
    def __init__(self, lent, rest):
        lent_by.append((lent, rest))
    def __getattribute__(self, name):
        return lent_by[-1][name != '__class__']
lent_by = []
""",
    "Copied": """
class Copied:
    def __init__(self, made):
        made_instead.append(made)
    def __new__(cls, *made):
        return object.__new__(cls) if made else made_instead[-1]
    def __getstate__(self):
        return {'x': last}
made_instead = []
""",
    "Stateful": """
import copy
class Stateful:
    def __setstate__(self, state):
        note('setstate', state, *(state.values() if type(state) is dict else ()))
    def __deepcopy__(self, memo):
        return self
""",
    "waiting": """
import asyncio
async def use_in_loop(thing):
    for name in dir(thing):
        if not name.startswith('_') and asyncio.iscoroutinefunction(getattr(thing, name)):
            try:
                await asyncio.wait_for(getattr(thing, name)(), 0.001)
            except Exception as error:
                note('error', error)
def waiting(thing):
    asyncio.run(use_in_loop(thing))
    return thing
""",
    "Slotted": """
class Slotted:
    __slots__ = ('x', '__dict__', '__weakref__')
""",
    "Record": """
import dataclasses
@dataclasses.dataclass
class Record:
    x: int = 1
    y: 'str' = 'y'
""",
    "Point": """
import collections
Point = collections.namedtuple('Point', 'x y')
""",
    "Colour": """
import enum
class Colour(enum.Enum):
    RED = 1
    BLUE = 'x'
""",
    "Error": """
class Error(Exception):
    def __str__(self):
        note('str', self)
        return 'x'
    def __eq__(self, other):
        note('eq', other)
        return True
    def with_traceback(self, trace):
        note('with_traceback', trace)
        return self
    __hash__ = None
class Group(ExceptionGroup):
    def split(self, *a):
        note('split', *a)
        return (self, None)
    def derive(self, *a):
        note('derive', *a)
        return self
""",
    "function": """
def function(x: int = 1, *a, y: 'int' = 2, **k) -> 'str':
    note('function', x, *a, *k.values())
    return x
def generator(x=1, *a, **k):
    note('generator', x, *a)
    got = yield x
    note('sent', got)
    yield got
async def coroutine(x=1, *a, **k):
    note('coroutine', x, *a)
    return x
def method(self, *a, **k):
    note('method', self, *a, *k.values())
    return self
def last(*a, **k):
    note('last', *a, *k.values())
    return a[-1] if a else None
""",
    "Final": """
class Final:
    def __del__(self):
        note('del', self)
""",
    "Through": """
import functools
try:
    import pathlib
    reach = pathlib.Path(OUTSIDE).read_text
    class Through:
        __getattribute__ = functools.partial(reach)
        __eq__ = functools.partial(reach)
        __hash__ = None
except ImportError:
    class Through:
        __getattribute__ = functools.partial(note, 'through')
""",
}

INSTANCES: Final = tuple(
    """
    Recorder() Asked() Lies() LiesOf(function) Equal() Reflects() Arrays() Answers() Mapping() Text('x')
    Text('__dict__') Text('__globals__') Text(OUTSIDE) TextAsked(INSIDE) Number(1) NumberAsked(1)
    Items([1]) Table(x=1) File() Descriptor() Raises()
    Ruled Meta Hooks Hooks() Base Entries(int) Giver(int) Giver(1) Slotted() Slotted Record() Record Point(1,2) Point
    Colour.RED Colour Error('x') Error Group('x',[Error('y')]) function generator generator() coroutine method last
    Final() Through() Equal Recorder Recorder().method last.__get__(Equal()) Boom Asked Raises (lambda*a,**k:last(*a))
    Keeps() Giver((int,str)) Giver(object) [Equal()] {'x':Equal()} (Equal(),1) {Answers():1}
    iter([Equal()]) Entries(object)
    """.split()
)
"""Expressions whose values are handed to the library."""

PLAIN: Final = (
    *"0 1 -1 2 2.5 True None 'x' 'a' '' 'a.b' '__dict__' '__class__' '_x' '{0._x}' b'x' [] [1,2] {} {'a':1}".split(),
    *"('x',1) range(3) 'utf-8' 'rb' 'w' '%s' 'json' 3j slice(1) ... frozenset('x') '1+1' '2020-01-01'".split(),
    *"OUTSIDE INSIDE [[1,2],[3,4]] ['a','b'] lambda*a:a iter([1]) bytearray(b'xy') {'x','y'} ['__dict__','_x']".split(),
)
"""Expressions of ordinary values."""

SAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "builtins": (
        *"int str object list dict type Exception super(Giver,Giver(1)) property(last) classmethod(last)".split(),
        *"staticmethod(last) memoryview(b'x') zip([1]) map(last,[1]) dict(a=1).items() ValueError('x') len".split(),
        *"KeyError() ExceptionGroup('x',[KeyError()]) enumerate('x') str.join 'x'.join object()".split(),
        "AttributeError('x',name='x',obj=len)",
    ),
    "abc": ("abc.ABC",),
    "types": (
        "types.MappingProxyType({})",
        "types.SimpleNamespace(x=1)",
        "types.MethodType(last,1)",
        "types.GenericAlias(list,int)",
        "types.DynamicClassAttribute(last)",
    ),
    "collections": (
        *"collections.OrderedDict(a=1) collections.ChainMap({}) collections.Counter('aab')".split(),
        *"collections.UserDict() collections.UserList collections.UserList([1])".split(),
        *"collections.UserString('x') collections.defaultdict(list)".split(),
        "collections.abc.Mapping",
    ),
    "contextlib": (
        "contextlib.ExitStack()",
        "contextlib.nullcontext(1)",
        "contextlib.ContextDecorator()",
        "contextlib.contextmanager(generator)",
        "contextlib.contextmanager(generator)()",
        "contextlib.AsyncExitStack()",
    ),
    "dataclasses": ("dataclasses.fields(Record)[0]", "dataclasses.field()", "dataclasses.KW_ONLY"),
    "datetime": ("datetime.datetime(2020,1,1)", "datetime.timedelta(1)", "datetime.date"),
    "decimal": ("decimal.Decimal(1)", "decimal.getcontext()"),
    "enum": ("enum.Flag", "enum.auto()", "enum.Enum"),
    "fractions": ("fractions.Fraction(1,2)",),
    "functools": (
        "functools.partial(last,1)",
        "functools.lru_cache(last)",
        "functools.cached_property(last)",
        "functools.singledispatch(last)",
        "functools.reduce",
    ),
    "inspect": ("inspect.signature(last)", "inspect.signature(function).parameters"),
    "io": ("io.StringIO('x')", "io.BytesIO(b'x')", "io.TextIOWrapper(io.BytesIO())"),
    "itertools": ("itertools.chain([1])", "itertools.islice([1],1)"),
    "json": ("json.JSONEncoder()", "json.JSONDecoder"),
    "logging": ("logging.getLogger('x')", "logging.LogRecord('x',1,'x',1,'x',(),None)", "logging.Formatter()"),
    "operator": ("operator.itemgetter(0)", "operator.attrgetter('x')", "operator.methodcaller('x')"),
    "pathlib": ("pathlib.PurePosixPath", "pathlib.PurePosixPath('x')", "pathlib.Path(INSIDE)"),
    "queue": ("queue.Queue()",),
    "random": ("random.Random(1)",),
    "re": (
        "re.compile('(?P<a>x)')",
        "re.match('(?P<a>x)','x')",
        "re.RegexFlag",
        "re.RegexFlag.A",
        "re.RegexFlag.__members__",
    ),
    "string": ("string.Template('$x')", "string.Formatter()"),
    "threading": ("threading.Lock()", "threading.local()", "threading.current_thread()", "threading.Event()"),
    "typing": ("typing.List", "typing.List[int]", "typing.TypeVar('T')", "typing.NamedTuple", "typing.Protocol"),
    "warnings": ("warnings.catch_warnings()", "warnings.catch_warnings(record=True)"),
    "weakref": ("weakref.ref(last)", "weakref.proxy(last)", "weakref.WeakKeyDictionary()"),
    "argparse": ("argparse.ArgumentParser()", "argparse.Namespace(x=1)"),
    "asyncio": ("asyncio.Queue()", "asyncio.Lock()"),
    "configparser": ("configparser.ConfigParser()",),
    "contextvars": ("contextvars.ContextVar('x')",),
    "csv": ("csv.reader(['x'])", "csv.DictReader(['x'])"),
    "email": ("email.message_from_string('a: b')",),
    "struct": ("struct.Struct('i')",),
    "traceback": ("traceback.extract_tb(None)",),
    "uuid": ("uuid.UUID(int=1)",),
    "xml.etree.ElementTree": ("xml.etree.ElementTree.fromstring('<a><b/></a>')",),
    "zoneinfo": ("zoneinfo.ZoneInfo('UTC')",),
    "numpy": (
        *"numpy.arange(3) numpy.ones((2,2)) numpy.array([last],dtype=object) numpy.dtype('i4') numpy.add".split(),
        *"numpy.float64(1) numpy.array(['a']) numpy.array([(1,2)],dtype=[('a','i4'),('b','i4')]) numpy.random".split(),
        *"numpy.random.default_rng(1) numpy.nditer([1,2]) numpy.ma.array([1,2]) numpy.poly1d([1]) numpy.int64".split(),
        "numpy.array(['2020-01-01'],dtype='M8[D]')",
        *(
            f"numpy.random.{name}(1)"
            for name in "RandomState PCG64 PCG64DXSM MT19937 Philox SFC64 SeedSequence".split()
        ),
    ),
    "pandas": (
        "pandas.DataFrame({'a':[1,2],'b':['x','y']})",
        "pandas.Series([1,2],name='a')",
        "pandas.Index(['x','y'])",
        "pandas.Timestamp('2020')",
        "pandas.Series(['x','y'])",
        "pandas.DataFrame({'a':[1,2],'b':['x','y']}).groupby('a')",
        "pandas.date_range('2020',periods=3)",
        "pandas.Categorical(['a','b'])",
        "pandas.Series([1,2]).rolling(2)",
        "pandas.MultiIndex.from_tuples([('a',1),('b',2)])",
        "pandas.Interval(0,1)",
        "pandas.Series(pandas.date_range('2020',periods=3))",
        "pandas.array([1,None])",
        "pandas.Period('2020')",
        "pandas.DataFrame({'a':[last,Equal()]})",
        "pandas.CategoricalIndex(['a'])",
        "pandas.Timedelta(1)",
        "pandas.offsets.Day()",
    ),
    "pyarrow": (
        "pyarrow.array([1,2])",
        "pyarrow.table({'a':[1,2]})",
        "pyarrow.int64()",
        "pyarrow.schema([('a',pyarrow.int64())])",
        "pyarrow.py_buffer(b'xy')",
        "pyarrow.scalar(1)",
        "pyarrow.chunked_array([[1]])",
        "pyarrow.record_batch({'a':[1]})",
        "pyarrow.field('a',pyarrow.int64())",
        "pyarrow.BufferReader(b'xy')",
        "pyarrow.compute.field('a')",
        "pyarrow.array(['x'])",
        "pyarrow.array([{'a':1}])",
        *(
            f"pyarrow.{maker}"
            for kind in (
                *"int8 int16 int32 uint8 uint16 uint32 uint64 float16 float32 float64 bool_".split(),
                *"string binary large_string".split(),
                *"large_binary date32 date64 string_view month_day_nano_interval time32('s') time64('us')".split(),
                *"timestamp('s') duration('s') decimal128(5) decimal256(5) list_(pyarrow.int8()) null".split(),
                *"struct([('a',pyarrow.int8())]) dictionary(pyarrow.int8(),pyarrow.int8()) binary(2)".split(),
            )
            for full in (kind if kind.endswith(")") else f"{kind}()",)
            for maker in (f"array([None],pyarrow.{full})", f"scalar(None,pyarrow.{full})", full)
        ),
    ),
    "matplotlib": (
        (
            "[(axis.set_major_formatter('{x}'), axis.get_major_formatter())[1] "
            "for axis in [matplotlib.figure.Figure().add_subplot().xaxis]][0]"
        ),
        "matplotlib.figure.Figure()",
        "matplotlib.figure.Figure().add_subplot()",
        "matplotlib.colors.Normalize()",
        "matplotlib.path.Path([(0,0),(1,1)])",
        "matplotlib.transforms.Affine2D()",
        "matplotlib.patches.Rectangle((0,0),1,1)",
        "matplotlib.lines.Line2D([0,1],[0,1])",
        "matplotlib.text.Text(0,0,'x')",
    ),
    "patsy": ("patsy.dmatrix('a',{'a':[1,2]})",),
    "yaml": (
        "yaml.SafeLoader('a: 1')",
        "yaml.compose('a: 1')",
        "yaml.CSafeLoader('a: 1')",
        "yaml.CSafeDumper(io.StringIO())",
    ),
    "dateutil": ("dateutil.tz.tzutc()", "dateutil.relativedelta.relativedelta(days=1)"),
    "openpyxl": ("openpyxl.Workbook()", "openpyxl.Workbook().active", "openpyxl.Workbook().active['A1']"),
    "PIL": (),
}
"""Objects of libraries by the module that they need, as session code makes them."""

LENDING: Final = (
    ("Lends(LENT_getattr, ['__globals__'])", "last"),
    ("Lends(LENT_eval, [{}])", "'len.__self__'"),
    ("LENT_getattr", "last", "'__globals__'"),
    ("LENT_type", "'T'", "(object,)", "{'__match_args__': ('_x',)}"),
)
"""Arguments with which code that calls what it was handed would do what no session may."""

LENDING_CLASS: Final = "type('C', (), dict.fromkeys({names}, [(object,), {{'__match_args__': ('_x',)}}]))", "'T'"
"""The same with a class, whose own class is `type`: it has whatever the code reads."""

ROUTES: Final[dict[str, str]] = {
    "getattr": "getattr(A, WORD)",
    "getattr_default": "getattr(A, WORD, None)",
    "mapped": "list(map(getattr, [A], [WORD]))[0]",
    "partial": "functools.partial(getattr, A)(WORD)",
    "attrgetter": "operator.attrgetter(WORD)(A)",
    "methodcaller": "operator.methodcaller('__getattribute__', WORD)(A)",
    "own_getattribute": "A.__getattribute__(WORD)",
    "getattribute_of_object": "object.__getattribute__(A, WORD)",
    "getattribute_of_type": "type.__getattribute__(A, WORD)",
    "getattribute_of_class": "type(A).__getattribute__(A, WORD)",
    "getattribute_of_super": "super(type(A), A).__getattribute__(WORD)",
    "getattr_of_class": "type(A).__getattr__(A, WORD)",
    "super": "getattr(super(type(A), A), WORD)",
    "alias": "getattr(types.GenericAlias(A, int), WORD)",
    "weak": "getattr(weakref.proxy(A), WORD)",
    "bound": "getattr(types.MethodType(A, 1), WORD)",
    "vars": "vars(A)[WORD]",
    "dict": "A.__dict__[WORD]",
    "members": "dict(inspect.getmembers(A))[WORD]",
    "static": "inspect.getattr_static(A, WORD)",
    "format": "('{0.' + WORD + '}').format(A)",
    "format_unbound": "str.format('{0.' + WORD + '}', A)",
    "format_map": "('{x.' + WORD + '}').format_map({'x': A})",
    "format_user": "collections.UserString('{0.' + WORD + '}').format(A)",
    "formatter": "string.Formatter().format('{0.' + WORD + '}', A)",
    "log_style": "logging.Formatter('{x.' + WORD + '}', style='{').format(logging.makeLogRecord({'x': A}))",
}
"""Ways to read the attribute ``WORD`` of ``A`` by a text: each must refuse what the name in the source is refused."""

OPERATIONS: Final[dict[str, str]] = {
    **{f"by_{name}": text for name, text in ROUTES.items()},
    "labelled": "A(type(WORD, (type(B),), {'__module__': WORD})())",
    "next": "next(iter(A))",
    "outcome": "A.result()",
    "list": "list(A)",
    "dict": "dict(A)",
    "str": "str(A)",
    "repr": "repr(A)",
    "format": "'{0:x}'.format(A)",
    "interpolate": "f'{A!r}{A:x}'",
    "bool": "bool(A)",
    "hash": "hash(A)",
    "index": "(0,1,2)[A]",
    "item": "A[B]",
    "eq": "A == B",
    "ne": "A != B",
    "equal": "A == Equal()",
    "reflected": "A | Reflects()",
    "lt": "A < B",
    "add": "A + B",
    "or": "A | B",
    "and": "A & B",
    "mod": "A % B",
    "matmul": "A @ B",
    "in": "A in B",
    "isinstance": "isinstance(A, B)",
    "issubclass": "issubclass(A, B)",
    "vars": "vars(A)",
    "dir": "dir(A)",
    "type": "type(A)",
    "class": "A.__class__",
    "dict_of": "A.__dict__",
    "sorted": "sorted([A, B])",
    "sum": "sum([A, B])",
    "max": "max(A, B)",
    "print": "print(A, file=B)",
    "star": "last(*A)",
    "stars": "last(**A)",
    "map": "list(map(A, [B]))",
    "filter": "list(filter(A, [B]))",
    "sort": "sorted([1, B], key=A)",
    "super": "super(A, B)",
    "named": "type(WORD, (A,), {})",
    "named_of": "type(WORD, (A,), {'__module__': WORD})()",
    "typed": "type('T', (A,), {'method': B, 'x': Descriptor()})",
    "namespace": "type('T', (A,), B)",
}
"""Operations that are expressions; ``A`` and ``B`` are objects, ``WORD`` a word of the wall."""

_WITH_SOME: Final = (
    "for given in ((), (B,), (B, B)):\n    try:\n        R = R(*given)\n        break\n"
    "    except Exception as error:\n        note('error', error)\n"
)

STATEMENTS: Final[dict[str, str]] = {
    "derive": "class R(A):\n    pass",
    "derive_both": "class R(A, B):\n    pass",
    "metaclass": "class R(metaclass=A):\n    pass",
    "metaclass_gives": "class R(metaclass=lambda *a, **k: A):\n    pass",
    "derive_by": "class R(A, metaclass=B):\n    pass",
    "override": "class R(A):\n" + _methods([*_PROTOCOLS[:16], "enter", "exit", "call", "iter"], "Recorder()"),
    "override_make": (
        "class R(A):\n"
        + _methods(["setattr", "getattr", "delattr", "init_subclass", "set_name", "call"], "None")
        + f"\n{_WITH_SOME}"
    ),
    "entries_give": "class R(Entries(object), metaclass=lambda *a, **k: A):\n    pass",
    "new_gives": "class M(type):\n    def __new__(m, *a, **k):\n        return A\nclass R(metaclass=M):\n    pass",
    "metaclass_sees": (
        "class M(type):\n    def __new__(m, name, bases, members):\n        note('members', *members.values())\n"
        "        return super().__new__(m, name, bases, members)\n"
        "class R(A, metaclass=M):\n    def method(self): return __class__"
    ),
    "alias_of_body": "class R(A):\n    type X = __classdict__\nR = R.X.__value__",
    "holds": "class R:\n    x = A\n    def method(self): pass",
    "property": "class R:\n    x = property(A)\n    y = A\nR = R().x",
    "item_of": "class R:\n    __getattr__ = A\nR = R().x",
    "equal_by": "class R:\n    __eq__ = A\n    __hash__ = None\nR = R() == B",
    "iter_by": "class R:\n    __iter__ = A\n    __next__ = A\nR = list(R())",
    "called_by": "class R:\n    __call__ = A\nR = R()(B)",
    "new_by": "class R:\n    __new__ = A\nR = R()",
    "annotated": "class R:\n    x: A = B",
    "decorate": "@A\ndef R(x=1, *a, **k):\n    note('decorated', x, *a)\n    return x",
    "decorate_class": "@A\nclass R:\n    x: int = 1\n    def method(self): pass",
    "decorate_generator": "@A\ndef R(x=1, *a):\n    note('decorated', x, *a)\n    yield x",
    "decorate_async": "@A\nasync def R(x=1, *a):\n    note('decorated', x, *a)\n    yield x",
    "with": "with A as R:\n    pass",
    "with_raise": "with A as R:\n    raise Error(B)",
    "match": (
        "match A:\n    case {'x': R, **rest}: note('rest', rest)\n    case [R, *rest]: pass\n"
        "    case Record(x=R): pass\n    case R: pass"
    ),
    "match_class": "kind = B\nmatch A:\n    case kind(x=R): pass\n    case kind(R): pass\n    case R: pass",
    "except": "try:\n    raise A\nexcept B as R:\n    pass",
    "except_group": "try:\n    raise A\nexcept* Error as R:\n    note('group', R)",
    "raise_from": "try:\n    raise A from B\nexcept BaseException as error:\n    R = error",
    "unpack": "R, *rest = A\nnote('rest', *rest)",
    "by_match": (
        "class M(type):\n    def __instancecheck__(cls, value):\n        return True\n"
        "K = M('K', (), {'__match_args__': (WORD,)})\nmatch A:\n    case K(R):\n        pass"
    ),
    "by_match_early": (
        "class M(type):\n    def __instancecheck__(cls, value):\n        return True\n"
        "found = []\nclass Early:\n    def __init_subclass__(cls):\n"
        "        match A:\n            case cls(got):\n                found.append(got)\n"
        "K = M('K', (Early,), {'__match_args__': (WORD,)})\nR = found[0]"
    ),
    "by_fields": (
        "found = []\nclass Takes:\n    __hash__ = None\n    def __eq__(self, other):\n"
        "        found.append(other)\n        return True\n"
        "class Passes:\n    def __getattribute__(self, name):\n"
        "        return type(A) if name == '__class__' else Takes()\n"
        "K = dataclasses.make_dataclass('K', [WORD])\nK.__eq__(A, Passes())\nR = found[0]"
    ),
    "hands_on": (
        "found = []\nclass R(A):\n    def clone(self, *given, **named):\n        note('cloned', *given, named)\n"
        "        found.append(named)\n        return self\n    copy = replace = _replace = clone\n"
        f"{_WITH_SOME}for work in (lambda: R + B, lambda: R | B, lambda: R % B, lambda: R & B, lambda: R << B):\n"
        "    try:\n        work()\n    except Exception as error:\n        note('error', error)\nR = found[0]"
    ),
    "set_item": "R = A\nR[0] = B",
    "set_attribute": "R = A\nR.x = B",
    "forwarding": "class R(A):\n    pass\nR = R.__new__(R)\nsetattr(R, WORD, B)",
    "copied": f"class R(Stateful, A):\n    pass\n{_WITH_SOME}R = copy.copy(R)",
    "copied_after_waiting": f"class R(Stateful, A):\n    pass\n{_WITH_SOME}R = copy.copy(waiting(R))",
    "copied_into": "R = copy.copy(Copied(A))",
    "cached_in": "R = functools.cached_property(last)\nR.__set_name__(Equal, 'x')\nR = R.__get__(A, Equal)",
    "setattr": "R = A\nsetattr(R, WORD, B)",
    "setattr_of_object": "R = A\nobject.__setattr__(R, WORD, B)",
    "setattr_of_type": "R = A\ntype.__setattr__(R, WORD, B)",
    "own_setattr": "R = A\nR.__setattr__(WORD, B)",
    "delattr": "R = A\ndelattr(R, WORD)",
    "delete": "R = A\ndel R.x",
    "in_place": "R = A\nR += B",
    "in_place_or": "R = A\nR |= B",
    "loop": "for R in A:\n    note('loop', R)\n    break",
    "await": (
        "async def work():\n    return await A\nsent = work()\n"
        "try:\n    R = sent.send(None)\nexcept StopIteration as end:\n    R = end.value"
    ),
    "async_with": (
        "async def work():\n    async with A as got:\n        return got\nsent = work()\n"
        "try:\n    R = sent.send(None)\nexcept StopIteration as end:\n    R = end.value"
    ),
    "async_for": (
        "async def work():\n    async for got in A:\n        return got\nsent = work()\n"
        "try:\n    R = sent.send(None)\nexcept StopIteration as end:\n    R = end.value"
    ),
    "yield_from": "def work():\n    yield from A\nR = next(work())",
    "send": "R = A.send(None)",
    "throw": "R = A.throw(Error('x'))",
}
"""Operations that are statements; they leave their result in ``R``."""

_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_DEFINES: Final = {
    name: label
    for label, text in BLOCKS.items()
    for name in re.findall(r"^(?:class|def|async def) (\w+)|^(\w+) = ", text, re.MULTILINE)
    for name in name
    if name
}


def blocks_for(text: str) -> list[str]:
    """The labels of the blocks that a piece of text needs, in the order of ``BLOCKS``."""
    wanted: set[str] = set()
    todo = [text]
    while todo:
        for name in _NAME.findall(todo.pop()):
            label = _DEFINES.get(name)
            if label is not None and label not in wanted:
                wanted.add(label)
                todo.append(BLOCKS[label])
    return [label for label in BLOCKS if label in wanted]


def modules_in(text: str, known: set[str]) -> list[str]:
    """The modules that a piece of text names."""
    found: set[str] = set()
    for chain in re.findall(r"(?<![\w.])([A-Za-z_]\w*(?:\.\w+)*)", text):
        parts = chain.split(".")
        found.update(".".join(parts[: n + 1]) for n in range(len(parts)) if ".".join(parts[: n + 1]) in known)
    return sorted(found)
