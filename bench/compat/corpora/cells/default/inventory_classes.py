# %%
from __future__ import annotations
from dataclasses import dataclass, field, asdict, replace
from enum import Enum, auto
from functools import total_ordering

class Unit(Enum):
    PIECE = auto()
    KG = auto()
    LITRE = auto()

@dataclass(frozen=True, order=True)
class Item:
    name: str
    unit: Unit = field(compare=False)
    price: float = field(default=0.0, compare=False)

    def __post_init__(self):
        if self.price < 0:
            raise ValueError(f"negative price for {self.name}")

apple = Item("apple", Unit.KG, 2.5)
print(apple, replace(apple, price=3))
try:
    apple.price = 1
except Exception as e:
    print(type(e).__name__, e)
# %%
class Inventory:
    def __init__(self):
        self._stock: dict[Item, float] = {}

    def __setitem__(self, item, n):
        if n < 0:
            raise ValueError("stock below zero")
        self._stock[item] = n

    def __getitem__(self, item):
        if isinstance(item, str):
            item = next(i for i in self._stock if i.name == item)
        return self._stock[item]

    def __contains__(self, name):
        return any(i.name == name for i in self._stock)

    def __iter__(self):
        return iter(sorted(self._stock))

    def __len__(self):
        return len(self._stock)

    def __iadd__(self, pair):
        item, n = pair
        self[item] = self._stock.get(item, 0) + n
        return self

    @property
    def value(self):
        return sum(i.price * n for i, n in self._stock.items())

inv = Inventory()
inv[apple] = 10
inv += (Item("oil", Unit.LITRE, 8), 4)
inv += (Item("egg", Unit.PIECE, 0.3), 60)
inv += (apple, 2.5)
print(len(inv), inv.value, "egg" in inv, "milk" in inv, inv["oil"])
[i.name for i in inv]
# %%
try:
    inv += (apple, -100)
except ValueError as exc:
    print("refused:", exc)
print(inv[apple])
print({k: (v.name if isinstance(v, Unit) else v) for k, v in asdict(apple).items()})
inv["cheese"]
# %%
@total_ordering
class Version:
    __slots__ = ("parts",)
    def __init__(self, text):
        self.parts = tuple(int(x) for x in text.split("."))
    def __eq__(self, other):
        return isinstance(other, Version) and self.parts == other.parts
    def __lt__(self, other):
        if not isinstance(other, Version):
            return NotImplemented
        return self.parts < other.parts
    def __hash__(self):
        return hash(self.parts)
    def __repr__(self):
        return f"v{'.'.join(map(str, self.parts))}"

vs = sorted(map(Version, "1.10.0 1.2.9 0.9 1.2 2.0.1".split()))
print(vs, vs[0] <= vs[1], Version("1.2") in vs, max(vs))
try:
    Version("1") < "2"
except TypeError as e:
    print(e)
