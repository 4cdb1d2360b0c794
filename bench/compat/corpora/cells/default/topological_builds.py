# %%
from graphlib import TopologicalSorter, CycleError
makefile = """
app: main.o util.o lib
main.o: main.c util.h
util.o: util.c util.h
lib: lib.c
test: app fixtures
docs:
"""
deps = {}
for line in makefile.strip().splitlines():
    target, _, rest = line.partition(":")
    deps[target.strip()] = sorted(rest.split())
deps
# %%
ts = TopologicalSorter(deps)
ts.prepare()
level = 0
while ts.is_active():
    ready = sorted(ts.get_ready())
    print(level, ready)
    ts.done(*ready)
    level += 1
# %%
bad = {**deps, "lib.c": ["docs"], "docs": ["lib"]}
try:
    list(TopologicalSorter(bad).static_order())
except CycleError as e:
    print(e.args[0], sorted(set(e.args[1])))
# %%
def dfs_order(graph):
    seen, out = {}, []
    def visit(n, path=()):
        if seen.get(n) == "done":
            return
        if n in path:
            raise RecursionError(" -> ".join(path[path.index(n):] + (n,)))
        for m in graph.get(n, ()):
            visit(m, path + (n,))
        seen[n] = "done"
        out.append(n)
    for n in sorted(graph):
        visit(n)
    return out
print(dfs_order(deps))
dfs_order(bad)
# %%
# what has to be rebuilt when util.h changes?
from collections import defaultdict
rev = defaultdict(set)
for t, ds in deps.items():
    for x in ds:
        rev[x].add(t)
def affected(x, acc=None):
    acc = set() if acc is None else acc
    for t in rev.get(x, ()):
        if t not in acc:
            acc.add(t)
            affected(t, acc)
    return acc
for f in ("util.h", "lib.c", "docs"):
    print(f, sorted(affected(f)))
