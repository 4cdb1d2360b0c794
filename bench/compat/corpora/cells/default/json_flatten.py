# %%
import json
doc = json.loads('''
{"user": {"id": 7, "name": "Ana", "tags": ["a", "b"], "address": {"city": "Porto", "geo": [41.15, -8.61]}},
 "orders": [{"sku": "X1", "qty": 2}, {"sku": "Y9", "qty": 1, "note": null}], "active": true}
''')
def flatten(obj, prefix=""):
    if isinstance(obj, dict):
        for k, v in obj.items():
            yield from flatten(v, f"{prefix}.{k}" if prefix else k)
    elif isinstance(obj, list):
        for i, v in enumerate(obj):
            yield from flatten(v, f"{prefix}[{i}]")
    else:
        yield prefix, obj
flat = dict(flatten(doc))
for k, v in flat.items():
    print(f"{k:28} {v!r}")
# %%
import re
def unflatten(flat):
    root = {}
    for key, value in flat.items():
        parts = [int(p) if p.isdigit() else p for p in re.findall(r"[^.\[\]]+", key)]
        cur = root
        for part, nxt in zip(parts, parts[1:]):
            default = [] if isinstance(nxt, int) else {}
            if isinstance(part, int):
                while len(cur) <= part:
                    cur.append(None)
                if cur[part] is None:
                    cur[part] = default
                cur = cur[part]
            else:
                cur = cur.setdefault(part, default)
        last = parts[-1]
        if isinstance(last, int):
            cur.insert(last, value)
        else:
            cur[last] = value
    return root
back = unflatten(flat)
assert back == doc, back
json.dumps(back, sort_keys=True)
# %%
def diff(a, b, path="$"):
    match (a, b):
        case ({}, {}) if isinstance(a, dict) and isinstance(b, dict):
            for k in sorted(a.keys() | b.keys()):
                if k not in a:
                    yield f"+ {path}.{k} = {b[k]!r}"
                elif k not in b:
                    yield f"- {path}.{k} = {a[k]!r}"
                else:
                    yield from diff(a[k], b[k], f"{path}.{k}")
        case ([*xs], [*ys]) if len(xs) == len(ys):
            for i, (x, y) in enumerate(zip(xs, ys)):
                yield from diff(x, y, f"{path}[{i}]")
        case _ if a != b:
            yield f"~ {path}: {a!r} -> {b!r}"

other = json.loads(json.dumps(doc))
other["user"]["name"] = "Anna"
other["orders"][1]["qty"] += 4
del other["active"]
other["user"]["tags"].append("c")
print("\n".join(diff(doc, other)))
# %%
class Encoder(json.JSONEncoder):
    def default(self, o):
        if isinstance(o, (set, frozenset)):
            return sorted(o)
        if isinstance(o, complex):
            return {"re": o.real, "im": o.imag}
        return super().default(o)

print(json.dumps({"s": {3, 1, 2}, "z": 1 + 2j}, cls=Encoder, indent=2))
try:
    json.dumps({"x": object}, cls=Encoder)
except TypeError as e:
    print("TypeError:", e)
print(json.loads('{"re": 1, "im": 2}', object_hook=lambda d: complex(d["re"], d["im"])))
