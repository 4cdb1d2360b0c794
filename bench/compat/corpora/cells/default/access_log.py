# %%
import re
from collections import Counter, defaultdict

LOG = """\
10.0.0.4 - - [12/Mar/2024:06:25:24 +0000] "GET /index.html HTTP/1.1" 200 5124 "-" "Mozilla/5.0"
10.0.0.9 - bob [12/Mar/2024:06:25:31 +0000] "POST /api/login HTTP/1.1" 401 88 "-" "curl/8.1"
10.0.0.9 - bob [12/Mar/2024:06:25:35 +0000] "POST /api/login HTTP/1.1" 200 412 "-" "curl/8.1"
10.0.0.4 - - [12/Mar/2024:06:26:02 +0000] "GET /static/app.js HTTP/1.1" 304 0 "-" "Mozilla/5.0"
192.168.7.1 - - [12/Mar/2024:06:27:44 +0000] "GET /admin HTTP/1.1" 403 19 "-" "Nikto"
192.168.7.1 - - [12/Mar/2024:06:27:45 +0000] "GET /wp-login.php HTTP/1.1" 404 19 "-" "Nikto"
192.168.7.1 - - [12/Mar/2024:06:27:45 +0000] "GET /.env HTTP/1.1" 404 19 "-" "Nikto"
broken line here
10.0.0.4 - - [12/Mar/2024:07:01:10 +0000] "GET /index.html HTTP/1.1" 500 0 "-" "Mozilla/5.0"
"""
print(len(LOG.splitlines()), "lines,", len(LOG), "chars")
print(LOG[:200])
# %%
pat = re.compile(
    r'(?P<ip>\S+) \S+ (?P<user>\S+) \[(?P<ts>[^\]]+)\] '
    r'"(?P<method>[A-Z]+) (?P<path>\S+) [^"]*" (?P<status>\d{3}) (?P<size>\d+) "[^"]*" "(?P<agent>[^"]*)"'
)
rows, bad = [], []
for n, line in enumerate(LOG.splitlines(), 1):
    m = pat.match(line)
    if not m:
        bad.append((n, line))
        continue
    d = m.groupdict()
    d["status"] = int(d["status"])
    d["size"] = int(d["size"])
    rows.append(d)
print("parsed", len(rows), "bad", bad)
rows[0]
# %%
by_status = Counter(r["status"] // 100 for r in rows)
for k in sorted(by_status):
    print(f"{k}xx  {by_status[k]:>3}  {'#' * by_status[k]}")

bytes_by_ip = defaultdict(int)
for r in rows:
    bytes_by_ip[r["ip"]] += r["size"]
for ip, b in sorted(bytes_by_ip.items(), key=lambda kv: -kv[1]):
    print(f"{ip:<15} {b:>8,}")
# %%
from datetime import datetime, timedelta

for r in rows:
    r["when"] = datetime.strptime(r["ts"], "%d/%b/%Y:%H:%M:%S %z")

# sessions: same ip, gap under 10 min
sessions = []
for r in sorted(rows, key=lambda r: (r["ip"], r["when"])):
    if sessions and sessions[-1][-1]["ip"] == r["ip"] and r["when"] - sessions[-1][-1]["when"] < timedelta(minutes=10):
        sessions[-1].append(r)
    else:
        sessions.append([r])
for s in sessions:
    print(s[0]["ip"], len(s), s[-1]["when"] - s[0]["when"], [x["path"] for x in s])
# %%
suspicious = {
    ip
    for ip in {r["ip"] for r in rows}
    if sum(1 for r in rows if r["ip"] == ip and r["status"] in (401, 403, 404)) >= 2
}
print(sorted(suspicious))
first, *rest = rows
print(first["when"].isoformat(), len(rest))
max(rows, key=lambda r: r["size"])["path"]
