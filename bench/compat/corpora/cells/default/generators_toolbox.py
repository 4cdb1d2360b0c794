# %%
from itertools import (accumulate, chain, combinations, count, cycle, dropwhile, groupby, islice,
                       permutations, product, repeat, starmap, takewhile, tee, zip_longest)
def primes():
    composites = {}
    for n in count(2):
        if n not in composites:
            yield n
            composites[n * n] = [n]
        else:
            for p in composites.pop(n):
                composites.setdefault(n + p, []).append(p)
print(list(islice(primes(), 15)))
print(list(takewhile(lambda p: p < 60, dropwhile(lambda p: p < 40, primes()))))
# %%
def running_mean():
    total = n = 0
    avg = None
    while True:
        x = yield avg
        if x is None:
            return total, n
        total += x; n += 1
        avg = total / n
def wrapper(log):
    result = yield from running_mean()
    log.append(result)
    yield "done"
log = []
g = wrapper(log)
next(g)
print([g.send(x) for x in (10, 20, 60)], g.send(None), log)
try:
    g.send(None)
except StopIteration as s:
    print("stopped", s.value)
# %%
data = "aaabbbccd" + "aa"
print([(k, len(list(v))) for k, v in groupby(data)])
rle = "".join(f"{len(list(g))}{k}" for k, g in groupby(data))
print(rle, list(accumulate([3, 1, 4, 1, 5], max)), list(accumulate(range(1, 6), lambda a, b: a * b, initial=1)))
print(["".join(p) for p in permutations("abc", 2)], sum(1 for _ in product(range(3), repeat=4)))
print(list(zip_longest("abc", [1], fillvalue="-")), list(starmap(pow, [(2, 5), (3, 2)])))
# %%
def batched(it, n):
    it = iter(it)
    while chunk := tuple(islice(it, n)):
        yield chunk
def window(it, k=3):
    its = tee(it, k)
    for i, x in enumerate(its):
        next(islice(x, i, i), None)
    return zip(*its)
print(list(batched(range(7), 3)), list(window("abcde")))
rr = cycle([iter("AB"), iter("12")])
print([next(next(rr)) for _ in range(4)])
triples = [(a, b, c) for a, b, c in combinations(range(1, 30), 3) if a * a + b * b == c * c]
triples
# %%
def gen():
    try:
        yield 1
        yield 2
    except GeneratorExit:
        print("closing")
        raise
    except ValueError as e:
        yield f"got {e}"
    finally:
        print("cleanup")
g = gen(); next(g); g.close()
g = gen(); next(g); print(g.throw(ValueError("x"))); print(next(g, "end"))
print(sum(x for row in [[1, 2], [3]] for x in row), {k: v for k, v in zip("ab", repeat(0))})
