# %%
from __future__ import annotations
from abc import ABC, abstractmethod
from collections import defaultdict
from typing import Any, Callable, Generic, Protocol, TypeVar, runtime_checkable
T = TypeVar("T")

class EventBus:
    def __init__(self) -> None:
        self._subs: defaultdict[str, list[tuple[int, Callable[..., Any]]]] = defaultdict(list)
    def on(self, event: str, *, priority: int = 0):
        def register(fn):
            self._subs[event].append((priority, fn))
            self._subs[event].sort(key=lambda p: -p[0])
            return fn
        return register
    def emit(self, event: str, /, **payload: Any) -> list[Any]:
        return [fn(**payload) for _, fn in self._subs[event]] + [fn(event=event, **payload) for _, fn in self._subs["*"] if event != "*"]

bus = EventBus()
@bus.on("save", priority=1)
def audit(path, **_): return f"audit {path}"
@bus.on("save", priority=5)
def backup(path, size=0): return f"backup {path} {size}"
@bus.on("*")
def log(event, **kw): return (event, sorted(kw))
print(bus.emit("save", path="a.txt", size=3))
print(bus.emit("other", x=1))
# %%
from __future__ import annotations
class Shape(ABC):
    registry: dict[str, type[Shape]] = {}
    def __init_subclass__(cls, /, kind: str | None = None, **kw):
        super().__init_subclass__(**kw)
        if kind:
            cls.registry[kind] = cls
    @abstractmethod
    def area(self) -> float: ...
    def __lt__(self, other): return self.area() < other.area()
class Sq(Shape, kind="square"):
    def __init__(self, a): self.a = a
    def area(self): return self.a ** 2
class Circle(Shape, kind="circle"):
    def __init__(self, r): self.r = r
    def area(self): return 3 * self.r ** 2
class Half(Shape): pass
print(list(Shape.registry), [type(s).__name__ for s in sorted([Sq(3), Circle(1), Sq(1)])])
try:
    Half()
except TypeError as e:
    print(str(e)[:45])
# %%
from __future__ import annotations
@runtime_checkable
class HasArea(Protocol):
    def area(self) -> float: ...
class Stack(Generic[T]):
    def __init__(self, *items: T): self._items = list(items)
    def push(self, x: T) -> Stack[T]:
        self._items.append(x)
        return self
    def pop(self) -> T: return self._items.pop()
    def __bool__(self): return bool(self._items)
    def __reversed__(self): return reversed(self._items)
    def __call__(self, n=1): return self._items[-n:]
s = Stack[int](1, 2).push(3)
print(isinstance(Sq(1), HasArea), isinstance(3, HasArea), list(reversed(s)), s(2), s.pop(), bool(s))
s.pop(); s.pop()
s.pop()
# %%
class Meta(type):
    def __new__(mcs, name, bases, ns, **kw):
        ns["fields"] = tuple(k for k in ns if not k.startswith("_") and not callable(ns[k]))
        return super().__new__(mcs, name, bases, ns)
    def __len__(cls): return len(cls.fields)
class Model(metaclass=Meta):
    id = 0
    title = ""
    def save(self): pass
print(Model.fields, len(Model), type(Model).__name__)
class Celsius:
    def __get__(self, o, t=None): return (o.f - 32) * 5 / 9
    def __set__(self, o, v): o.f = v * 9 / 5 + 32
class Temp:
    c = Celsius()
    def __init__(self, f): self.f = f
    def __getattr__(self, name):
        if name.startswith("is_"):
            return lambda: name[3:] == ("hot" if self.f > 86 else "cold")
        raise AttributeError(f"no {name}")
t = Temp(212)
print(t.c, t.is_hot(), end=" "); t.c = 0; print(t.f, t.is_cold(), hasattr(t, "q"))
