# %%
import csv, io

raw = """id,customer,date,net,vat
1001,"Miller, Ltd.",2024-01-03,120.00,19
1002,Ocean & Co,2024-01-05,75.5,7
1003,"Miller, Ltd.",2024-02-11,,19
1004,Kaya GmbH,2024-02-30,310.10,19
1005,Ocean & Co,2024-03-01,"1,250.00",19
"""
reader = csv.DictReader(io.StringIO(raw))
data = list(reader)
print(reader.fieldnames)
for row in data:
    print(row)
# %%
total = sum(float(r["net"]) for r in data)
print(total)
# %%
# some are empty / have thousand separators, be careful
from decimal import Decimal, InvalidOperation, ROUND_HALF_UP

def money(s: str) -> Decimal | None:
    try:
        return Decimal(s.replace(",", ""))
    except InvalidOperation:
        return None

nets = [money(r["net"]) for r in data]
print(nets)
print("total", sum(n for n in nets if n is not None))
# %%
from datetime import date
problems = []
clean = []
for r, net in zip(data, nets):
    try:
        when = date.fromisoformat(r["date"])
    except ValueError as e:
        problems.append((r["id"], str(e)))
        continue
    if net is None:
        problems.append((r["id"], "no amount"))
        continue
    gross = (net * (1 + Decimal(r["vat"]) / 100)).quantize(Decimal("0.01"), ROUND_HALF_UP)
    clean.append({**r, "date": when, "net": net, "gross": gross})
print(len(clean), problems)
out = io.StringIO()
w = csv.DictWriter(out, fieldnames=["id", "customer", "gross"], extrasaction="ignore", lineterminator="\n")
w.writeheader()
w.writerows(clean)
print(out.getvalue())
