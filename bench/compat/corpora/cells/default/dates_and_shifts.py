# %%
from datetime import date, datetime, timedelta, timezone, time
import calendar
d = date(2024, 2, 28)
for i in range(3):
    print((d + timedelta(days=i)).strftime("%a %d %b %Y, week %V, day %j"))
print(calendar.month(2024, 2))
print(calendar.isleap(1900), calendar.monthrange(2023, 2))
# %%
def add_months(d: date, n: int) -> date:
    y, m = divmod(d.year * 12 + d.month - 1 + n, 12)
    return date(y, m + 1, min(d.day, calendar.monthrange(y, m + 1)[1]))
print([add_months(date(2024, 1, 31), k).isoformat() for k in (1, 2, 13, -2, -11)])
def easter(y):
    a, b, c = y % 19, y // 100, y % 100
    d_, e = divmod(b, 4)
    g = (8 * b + 13) // 25
    h = (19 * a + b - d_ - g + 15) % 30
    i, k = divmod(c, 4)
    l = (32 + 2 * e + 2 * i - h - k) % 7
    m = (a + 11 * h + 19 * l) // 433
    month = (h + l - 7 * m + 90) // 25
    return date(y, month, (h + l - 7 * m + 33 * month + 19) % 32)
print([str(easter(y)) for y in range(2022, 2028)])
# %%
shifts = """
mon 22:00-06:15
tue 09:30-17:00
wed 13:00-13:00
thu 7:00-15:30
""".split("\n")
total = timedelta()
for s in filter(None, shifts):
    day, span = s.split()
    a, b = (datetime.combine(d, time(*map(int, x.split(":")))) for x in span.split("-"))
    if b < a:
        b += timedelta(days=1)
    total += b - a
    print(day, b - a)
print(total, total / timedelta(hours=1), divmod(total, timedelta(hours=8)))
# %%
utc = datetime(2024, 3, 31, 0, 30, tzinfo=timezone.utc)
tz = timezone(timedelta(hours=5, minutes=45), "NPT")
print(utc.astimezone(tz), utc.astimezone(tz).tzname(), utc.timestamp())
print(datetime.fromtimestamp(1_700_000_000, timezone.utc).isoformat(timespec="milliseconds"))
for s in ("2024-05-06T07:08:09Z", "2024-W05-2", "20240506", "yesterday"):
    try:
        print(s, "->", datetime.fromisoformat(s))
    except ValueError as e:
        print(s, "->", e)
datetime(2024, 1, 1) < utc
