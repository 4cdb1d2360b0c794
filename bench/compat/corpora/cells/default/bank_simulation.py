# %%
import random
from dataclasses import dataclass, field
rng = random.Random(42)

@dataclass
class Account:
    owner: str
    balance: int = 0
    history: list = field(default_factory=list, repr=False)
    def deposit(self, n):
        self.balance += n
        self.history.append(("+", n))
    def withdraw(self, n):
        if n > self.balance:
            raise InsufficientFunds(self, n)
        self.balance -= n
        self.history.append(("-", n))

class InsufficientFunds(Exception):
    def __init__(self, account, amount):
        super().__init__(f"{account.owner} has {account.balance}, needs {amount}")
        self.missing = amount - account.balance

accounts = [Account(n, 100) for n in ("ann", "ben", "cy")]
accounts
# %%
failures = 0
for day in range(200):
    a, b = rng.sample(accounts, 2)
    amount = rng.randint(1, 60)
    try:
        a.withdraw(amount)
    except InsufficientFunds as e:
        failures += 1
        if failures <= 3:
            print(f"day {day}: {e} (missing {e.missing})")
    else:
        b.deposit(amount)
print("failures", failures)
assert sum(x.balance for x in accounts) == 300
for acc in accounts:
    print(acc, len(acc.history))
# %%
import statistics as st
amounts = [n for acc in accounts for sign, n in acc.history if sign == "+"]
print(f"n={len(amounts)} mean={st.mean(amounts):.2f} median={st.median(amounts)} stdev={st.stdev(amounts):.3f}")
print([round(q, 1) for q in st.quantiles(amounts, n=4)], st.multimode([x // 20 for x in amounts]))
hist = [0] * 6
for x in amounts:
    hist[x // 10 - (x == 60)] += 1
for i, h in enumerate(hist):
    print(f"{i*10:>3}-{i*10+9:<3} {'█' * (h // 2)} {h}")
# %%
# queue at a counter: M/M/1
def simulate(lam, mu, n, seed):
    r = random.Random(seed)
    t = free = 0.0
    waits = []
    for _ in range(n):
        t += r.expovariate(lam)
        begin = max(t, free)
        waits.append(begin - t)
        free = begin + r.expovariate(mu)
    return st.fmean(waits)
for rho in (0.3, 0.6, 0.9):
    sim = simulate(rho, 1.0, 20_000, seed=7)
    print(f"rho={rho:.1f} simulated={sim:7.3f} theory={rho / (1 - rho):7.3f}")
