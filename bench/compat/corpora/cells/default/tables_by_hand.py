# %%
rows = [
    ("alpha", 12, 3.14159, True), ("be", 1200, 2.5, False), ("gamma ray", 7, -0.001, True), ("δelta", 0, 1e6, None),
]
head = ("name", "count", "value", "ok")
def table(head, rows, fmt={}):
    cells = [[format(x, fmt.get(h, "")) if not isinstance(x, (bool, type(None))) else str(x) for h, x in zip(head, r)] for r in rows]
    widths = [max(map(len, col)) for col in zip(head, *cells)]
    line = "+".join("-" * (w + 2) for w in widths)
    print(" | ".join(f"{h:^{w}}" for h, w in zip(head, widths)))
    print(line)
    for raw, r in zip(rows, cells):
        print(" | ".join(f"{c:>{w}}" if isinstance(x, (int, float)) else f"{c:<{w}}" for x, c, w in zip(raw, r, widths)))
table(head, rows, {"value": ".2f", "count": ","})
# %%
def markdown(head, rows):
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for r in rows:
        yield "| " + " | ".join(str(x).replace("|", "\\|") for x in r) + " |"
print(*markdown(head, rows), sep="\n")
# %%
from operator import itemgetter, attrgetter, methodcaller
print(sorted(rows, key=itemgetter(1, 0), reverse=True)[0])
print(sorted(rows, key=lambda r: (r[3] is None, not r[3], r[0])))
print(list(map(methodcaller("upper"), map(itemgetter(0), rows))))
try:
    sorted(rows, key=itemgetter(3))
except TypeError as e:
    print("TypeError:", e)
# %%
pivot = {}
for kind, q, n in [("a", "q1", 3), ("b", "q1", 1), ("a", "q2", 4), ("b", "q3", 1), ("a", "q3", 5), ("a", "q1", 9)]:
    pivot.setdefault(kind, {}).setdefault(q, []).append(n)
qs = sorted({q for v in pivot.values() for q in v})
print(f"{'':4}" + "".join(f"{q:>8}" for q in qs) + f"{'sum':>8}")
for kind, v in sorted(pivot.items()):
    sums = [sum(v.get(q, [])) for q in qs]
    print(f"{kind:4}" + "".join(f"{s or '-':>8}" for s in sums) + f"{sum(sums):>8}")
width = 30
for label, x in [("left", "<"), ("right", ">"), ("mid", "^"), ("eq", "=")]:
    print(f"{label!r:10}", f"{-42.5:*{x}{width}.3f}" )
f"{rows[0]!r:.20}"
