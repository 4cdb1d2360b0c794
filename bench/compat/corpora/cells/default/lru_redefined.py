# %%
# first attempt
class LRU:
    def __init__(self, cap):
        self.cap = cap
        self.d = {}
    def get(self, k):
        if k in self.d:
            return self.d[k]
    def put(self, k, v):
        self.d[k] = v
        if len(self.d) > self.cap:
            self.d.pop(next(iter(self.d)))

def test(cls):
    c = cls(2)
    c.put("a", 1); c.put("b", 2)
    c.get("a")
    c.put("c", 3)
    print("DEBUG", cls.__name__, list(c.d))
    assert c.get("a") == 1, "a was used last, must stay"
    assert c.get("b") is None
test(LRU)
# %%
# get() has to move the key. OrderedDict has move_to_end
from collections import OrderedDict
class LRU:
    def __init__(self, cap):
        self.cap = cap
        self.d = OrderedDict()
        self.hits = self.misses = 0
    def get(self, k, default=None):
        try:
            self.d.move_to_end(k)
        except KeyError:
            self.misses += 1
            return default
        self.hits += 1
        return self.d[k]
    def put(self, k, v):
        self.d[k] = v
        self.d.move_to_end(k)
        while len(self.d) > self.cap:
            old = self.d.popitem(last=False)
            print("DEBUG evict", old)
test(LRU)
# %%
import random
random.seed(3)
c = LRU(5)
import io, contextlib
with contextlib.redirect_stdout(io.StringIO()) as noise:
    for _ in range(300):
        k = int(random.paretovariate(1.2)) % 20
        if c.get(k) is None:
            c.put(k, k * k)
print(f"hit rate {c.hits / (c.hits + c.misses):.2%}, evictions {noise.getvalue().count('evict')}")
list(c.d.items())
# %%
def memo(maxsize):
    def deco(fn):
        cache = LRU(maxsize)
        def inner(*args):
            if (v := cache.get(args)) is None:
                v = fn(*args)
                cache.put(args, v)
            return v
        inner.cache = cache
        return inner
    return deco
@memo(100)
def collatz(n):
    return 1 if n == 1 else 1 + collatz(n // 2 if n % 2 == 0 else 3 * n + 1)
print(max(range(1, 30), key=collatz), collatz(27), collatz.cache.hits)
