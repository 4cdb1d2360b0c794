# %%
LOG = '''2024-05-01T10:00:00 INFO  svc.web request id=1 path=/a ms=12
2024-05-01T10:00:01 ERROR svc.db query failed
Traceback (most recent call last):
  File "/srv/app/db.py", line 41, in query
    cur.run(sql)
TimeoutError: 30s
2024-05-01T10:00:05 WARN  svc.web slow id=2 path=/b ms=900
2024-05-01T10:00:09 ERROR svc.db query failed
Traceback (most recent call last):
  File "/srv/app/db.py", line 41, in query
    cur.run(sql)
TimeoutError: 30s
2024-05-01T10:01:10 ERROR svc.mail bounce
Traceback (most recent call last):
  File "/srv/app/mail.py", line 7, in send
    smtp.send(m)
ConnectionRefusedError: [Errno 111]
2024-05-01T10:02:00 INFO  svc.web request id=3 path=/a ms=15
'''
lines = LOG.splitlines()
len(lines), sum("ERROR" in l for l in lines)
# %%
import re
from dataclasses import dataclass, field
@dataclass
class Entry:
    ts: str
    level: str
    name: str
    msg: str
    extra: list[str] = field(default_factory=list)
    @property
    def exc(self):
        return self.extra[-1].partition(":")[0] if self.extra else None
head = re.compile(r"^(\S+T\S+)\s+(INFO|WARN|ERROR)\s+(\S+)\s+(.*)$")
entries = []
for l in lines:
    if m := head.match(l):
        entries.append(Entry(*m.groups()))
    else:
        entries[-1].extra.append(l)
for e in entries:
    print(e.level, e.name, e.exc, len(e.extra))
# %%
import hashlib
groups = {}
for e in entries:
    if e.level == "ERROR":
        sig = hashlib.sha1("\n".join(e.extra).encode()).hexdigest()[:8]
        groups.setdefault(sig, []).append(e)
for sig, es in sorted(groups.items(), key=lambda kv: len(kv[1]), reverse=True):
    place = re.search(r'File "([^"]+)", line (\d+), in (\w+)', "\n".join(es[0].extra))
    print(f"{len(es)}x {es[0].exc} at {place[1].rsplit('/', 1)[-1]}:{place[2]} in {place[3]}()  first {es[0].ts[11:]} last {es[-1].ts[11:]}")
# %%
kv = re.compile(r"(\w+)=(\S+)")
reqs = [dict(kv.findall(e.msg)) for e in entries if kv.search(e.msg)]
lat = sorted(int(r["ms"]) for r in reqs)
def pct(xs, p):
    k = (len(xs) - 1) * p / 100
    lo = int(k)
    hi = min(lo + 1, len(xs) - 1)
    return xs[lo] + (xs[hi] - xs[lo]) * (k - lo)
print({p: pct(lat, p) for p in (50, 90, 99)})
print(entries[0].latency)
