# %%
import difflib
old = """[server]
host = 0.0.0.0
port = 8080
workers = 4
[db]
url = postgres://db/app
pool = 5
""".splitlines(keepends=True)
new = """[server]
host = 127.0.0.1
port = 8080
workers = 8
timeout = 30
[db]
url = postgres://db/app
""".splitlines(keepends=True)
print("".join(difflib.unified_diff(old, new, "old.ini", "new.ini", n=1)))
# %%
sm = difflib.SequenceMatcher(None, old, new)
print(f"ratio {sm.ratio():.3f}")
for tag, i1, i2, j1, j2 in sm.get_opcodes():
    print(f"{tag:8} old[{i1}:{i2}] new[{j1}:{j2}]")
print(difflib.get_close_matches("wrkers", ["workers", "worker", "host", "timeout"], n=2))
# %%
import configparser
def parse(lines):
    cp = configparser.ConfigParser(interpolation=None)
    cp.read_string("".join(lines))
    return {(s, k): v for s in cp.sections() for k, v in cp.items(s)}
a, b = parse(old), parse(new)
for key in sorted(a.keys() | b.keys()):
    x, y = a.get(key), b.get(key)
    if x != y:
        print(".".join(key), "::", x, "=>", y)
# %%
import tomllib
t = tomllib.loads('title = "x"\n[a.b]\nn = [1, 2]\nwhen = 2024-05-01\n[[srv]]\nip = "10.0.0.1"\n[[srv]]\nip = "10.0.0.2"\n')
print(t)
try:
    tomllib.loads("a = \n")
except tomllib.TOMLDecodeError as e:
    print("toml:", e)
print(t["a"]["b"]["when"].year, [s["ip"] for s in t["srv"]])
