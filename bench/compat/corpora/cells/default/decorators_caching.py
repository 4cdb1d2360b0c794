# %%
import functools, inspect
calls = []
def traced(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kw):
        calls.append((fn.__name__, args, kw))
        result = fn(*args, **kw)
        print(f"{fn.__name__}({', '.join(map(repr, args))}) = {result!r}")
        return result
    return wrapper

@traced
def area(w: float, h: float = 1.0) -> float:
    """w times h"""
    return w * h

area(2, 3); area(4)
print(area.__name__, area.__doc__, inspect.signature(area))
# %%
@functools.lru_cache(maxsize=None)
def ways(n: int, coins=(1, 5, 10, 25)) -> int:
    if n == 0:
        return 1
    if n < 0 or not coins:
        return 0
    return ways(n - coins[-1], coins) + ways(n, coins[:-1])
print([ways(n) for n in (1, 5, 10, 50, 100)])
ways.cache_info()
# %%
def validate(**types):
    def deco(fn):
        sig = inspect.signature(fn)
        @functools.wraps(fn)
        def inner(*a, **k):
            bound = sig.bind(*a, **k)
            bound.apply_defaults()
            for name, t in types.items():
                if not isinstance(bound.arguments[name], t):
                    raise TypeError(f"{name} must be {t.__name__}, got {type(bound.arguments[name]).__name__}")
            return fn(*bound.args, **bound.kwargs)
        return inner
    return deco

@validate(name=str, times=int)
def greet(name, times=2, *, sep=", "):
    return sep.join([f"hi {name}"] * times)
print(greet("bo"), "|", greet("bo", 3, sep="/"))
greet("bo", "3")
# %%
class once:
    """property computed once, descriptor version"""
    def __init__(self, fn):
        self.fn = fn
    def __set_name__(self, owner, name):
        self.name = name
    def __get__(self, obj, owner=None):
        if obj is None:
            return self
        value = obj.__dict__[self.name] = self.fn(obj)
        return value

class Report:
    def __init__(self, rows): self.rows = rows
    @once
    def total(self):
        print("computing...")
        return sum(self.rows)
    @functools.cached_property
    def mean(self): return self.total / len(self.rows)
r = Report([3, 4, 8])
print(r.total, r.total, r.mean)
print(sorted(vars(r)))
# %%
@functools.singledispatch
def show(x): return f"? {x}"
@show.register
def _(x: int): return f"int {x:+d}"
@show.register(list)
def _(x): return "[" + "; ".join(show(i) for i in x) + "]"
print(show([1, "a", [2.5, -3]]))
print(functools.reduce(lambda f, g: lambda x: g(f(x)), [str, len, bin])(12345))
