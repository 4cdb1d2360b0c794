"""What is true of a session is true after it was saved and restored: defaults, closures, classes, sharing, cycles."""

import pytest
from snapshot_kernel import Saving

pytestmark = pytest.mark.anyio

CELLS = r"""
import collections, contextlib, dataclasses, enum, functools, queue, random, threading, time, typing
bound = 1
def by_default(value=bound): return value
bound = 2
start = 5
by_lambda = lambda value=start: value
start = 6
rows = [0] * 10
class Sized:
    size = len(rows)
rows.append(1)
class Collects:
    items = []
Collects.items.append(1)
class Counted:
    count = 0
    def __init__(self): type(self).count += 1
[Counted() for _ in range(2)]
def remembers(key, *, seen={}):
    seen[key] = 1
    return len(seen)
remembers(1), remembers(2)
class Chance:
    number = random.random()
number = Chance.number
def when(at=time.time()): return at
then = when()
def counter():
    n = 0
    def up():
        nonlocal n
        n += 1
        return n
    def now(): return n
    return up, now
up, now = counter()
up()
def factorial(n): return 1 if n < 2 else n * factorial(n - 1)
def make_fibonacci():
    def fibonacci(n): return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)
    return fibonacci
fibonacci = make_fibonacci()
class Registry:
    names = []
    def __init_subclass__(cls): Registry.names.append(cls.__name__)
class First(Registry): pass
class Second(Registry): pass
class Meta(type):
    made = []
    def __new__(mcls, name, bases, names):
        Meta.made.append(name)
        return super().__new__(mcls, name, bases, names)
class ByMeta(metaclass=Meta): pass
class Parent:
    def hello(self): return 'parent'
class Child(Parent):
    def hello(self): return super().hello() + ' child'
child = Child()
@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: int = 3
points, point_set = {Point(1): 'a', Point(2, 4): 'b'}, {Point(5)}
class Hashed:
    def __init__(self, value): self.value = value
    def __hash__(self): return hash(self.value)
    def __eq__(self, other): return self.value == other.value
hashed = {Hashed(1): Hashed(2)}
class Node:
    def __init__(self, value, next=None): self.value, self.next = value, next
head = None
for i in range(5000): head = Node(i, head)
class Table(dict): pass
table = Table(a=1); table.tag = 't'; table['self'] = table
class Config(dict):
    def __init__(self, **named): super().__init__(**named); self.__dict__ = self
config = Config(a=1); config.b = [2]
class Rows(list): pass
own_rows = Rows([1, 2]); own_rows.append(own_rows)
one, two = [lambda: 1, lambda: 2]
yes, number_one = [lambda: True, lambda: 1]
numbered = [(lambda i: lambda: i)(i) for i in range(3)]
class Named:
    calls = 0
    def __set_name__(self, owner, name): self.name = name; Named.calls += 1
class HasNamed:
    field = Named()
class Colour(enum.Enum):
    RED = 1
    BLUE = 2
    def loud(self): return self.name + '!'
class Bits(enum.Flag):
    A = 1
    B = 2
both, by_colour = Bits.A | Bits.B, {Colour.RED: [Colour.BLUE]}
class Forms:
    _hidden = 3
    @functools.cached_property
    def big(self): return 42
    @classmethod
    def make(cls): return cls()
    @staticmethod
    def still(): return 's'
    @property
    def peek(self): return self._hidden
forms = Forms.make(); forms.big
def generate(): yield 1
@functools.wraps(generate)
def wrapped(): return list(generate())
@contextlib.contextmanager
def managed(): yield 5
pair = (1, [2]); same_pair = pair
nested = {'pair': pair, 'list': pair[1]}
try: {}['key']
except KeyError as error: caught = error
class Failure(ValueError):
    def __init__(self, code, text): super().__init__(text); self.code = code
failure = Failure(3, 'text'); failure.__cause__ = caught
Place = collections.namedtuple('Place', 'x y', defaults=[9])
place = Place(1)
class Sum(Place):
    def sum(self): return self.x + self.y
summed = Sum(1, 2)
class Safe:
    def __init__(self): self._lock = threading.Lock(); self.n = 1
    def up(self):
        with self._lock: self.n += 1
        return self.n
safe = Safe()
def annotated(a: int, b: typing.Optional[str] = None) -> list[int]:
    "The text."
    return [a]
waiting = queue.Queue(); waiting.put(1)
class Slots:
    __slots__ = ('a', '__dict__')
slots = Slots(); slots.a = 1; slots.q = 2
@dataclasses.dataclass(slots=True, order=True)
class Ordered:
    a: int
    b: int = 2
ordered = Ordered(1)
@dataclasses.dataclass
class Base:
    a: int
@dataclasses.dataclass
class Derived(Base):
    b: list = dataclasses.field(default_factory=list)
    def total(self): return self.a + len(self.b)
derived = Derived(1, [2])
steps = iter(rows); next(steps)
by_default.tag = ['kept']
class Typed(typing.Generic[typing.TypeVar('T')]):
    def __init__(self, v): self.v = v
typed = Typed[int](4)
def outer(self):
    class Inner:
        def get(this): return self
    return Inner
inner = outer('closed over')()
seen, seen_again = set(), {}
class Salted:
    weight, more = 3, [4]
    asked = 0
    def __init__(self, n): self.n = n
    def __hash__(self):
        Salted.asked += 1
        return hash((self.n, salt[0], pepper, spice.hot, Salted.weight, Salted.more[0]))
    def __eq__(self, other): return type(other) is Salted and self.n + salt[0] == other.n + salt[0]
class Spice: pass
salt, pepper, spice = [1], 2, Spice()
spice.hot = True
seen.add(Salted(1)); seen_again[Salted(2)] = seen
seen_again[next(iter(seen))] = 1
asked = Salted.asked
class Word(str):
    def __hash__(self): return str.__hash__(self) + pepper
words = {Word('a'): 1}
class Symbol:
    known, weight = {}, 7
    def __hash__(self): return Symbol.weight
symbol = Symbol(); Symbol.known[symbol] = 1
"""
SENTENCES = r"""
by_default() == 1
by_lambda() == 5
Sized.size == 10 and len(rows) == 11
Collects.items == [1]
Counted.count == 2
remembers(3) == 3
Chance.number == number
when() == then
(now(), up(), now()) == (1, 2, 2)
factorial(5) == 120
(config.a, config['b'], vars(config) is config, dict(config)) == (1, [2], True, {'a': 1, 'b': [2]})
fibonacci(10) == 55
Registry.names == ['First', 'Second']
Meta.made == ['ByMeta'] and type(ByMeta) is Meta
child.hello() == 'parent child' and isinstance(child, Parent) and type(child) is Child
points[Point(1)] == 'a' and points[Point(2, 4)] == 'b'
Point(5) in point_set and Point(5) not in points
hashed[Hashed(1)].value == 2
(head.value, head.next.next.value) == (4999, 4997)
table['a'] == 1 and table.tag == 't' and table['self'] is table
own_rows[2] is own_rows
(one(), two()) == (1, 2)
yes() is True and number_one() is not True
[number() for number in numbered] == [0, 1, 2]
Named.calls == 1 and HasNamed.field.name == 'field'
Colour.RED.loud() == 'RED!' and Colour(1) is Colour.RED and by_colour[Colour.RED] == [Colour.BLUE]
both == Bits.A | Bits.B
forms.big == 42 and Forms.still() == 's' and forms.peek == 3
wrapped() == [1] and wrapped.__name__ == 'generate'
managed().__enter__() == 5
pair is same_pair and nested['pair'] is pair and nested['list'] is pair[1]
caught.args == ('key',)
failure.code == 3 and failure.args == ('text',) and failure.__cause__ is caught
place == (1, 9) and Place(4).y == 9
summed.sum() == 3 and summed.x == 1
safe.up() == 2
annotated.__annotations__['a'] is int and annotated.__doc__ == 'The text.'
waiting.get() == 1
(slots.a, slots.q) == (1, 2)
ordered == Ordered(1) and ordered < Ordered(2)
derived.total() == 2 and derived == Derived(1, [2]) and Derived(3).b is not Derived(3).b
next(steps) == 0
by_default.tag == ['kept']
typed.v == 4 and Typed[str]('x').v == 'x'
inner.get() == 'closed over'
bound == 2 and start == 6
Salted.asked == asked
Salted(1) in seen and seen_again[Salted(2)] is seen and seen_again[Salted(1)] == 1
words[Word('a')] == 1
Symbol.known[symbol] == 1
""".strip().splitlines()
ASKED = f"[text for text, true in [{', '.join(f'({text!r}, {text})' for text in SENTENCES)}] if true is not True]"


async def test_every_sentence_is_as_true_after_a_restore_as_before(supervisor, spawn) -> None:
    """Values are saved as values: no default, class body or decorator runs again. It holds for a second save, too."""
    kernels = [await spawn() for _ in range(3)]
    first, second, third = (Saving(supervisor, kernel.kernel_id) for kernel in kernels)
    await first.run(CELLS)
    told, image = await first.save()
    assert told.failed == ()
    assert (await second.restore(image)).failed == ()
    told, image = await second.save()
    assert told.failed == ()
    assert (await third.restore(image)).failed == ()
    for one in (first, second, third):
        assert await one.run(ASKED) == "[]"
    for kernel in kernels:
        await supervisor.shutdown(kernel.kernel_id)


def test_there_are_as_many_sentences_as_are_promised() -> None:
    """The list only grows."""
    assert len(SENTENCES) >= 48
