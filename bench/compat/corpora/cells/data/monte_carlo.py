# %%
import numpy as np
rng = np.random.default_rng(2024)
def estimate_pi(n):
    pts = rng.random((n, 2))
    return 4 * (np.square(pts).sum(axis=1) <= 1).mean()
for n in (100, 10_000, 200_000):
    print(f"{n:>8} {estimate_pi(n):.4f}")
# %%
steps = rng.choice([-1, 1], size=(500, 100))
paths = steps.cumsum(axis=1)
print(paths.shape, paths[:, -1].mean().round(3), paths[:, -1].std().round(2))
crossed = (np.abs(paths) >= 10).any(axis=1)
first = np.where(crossed, (np.abs(paths) >= 10).argmax(axis=1), -1)
print(crossed.mean(), np.median(first[crossed]))
hist, bin_edges = np.histogram(paths[:, -1], bins=8)
for h, lo, hi in zip(hist, bin_edges, bin_edges[1:]):
    print(f"[{lo:6.1f},{hi:6.1f}) {'*' * int(h // 4)}")
# %%
def price_option(s0=100, k=105, r=0.03, sigma=0.2, t=1.0, n=50_000):
    z = rng.standard_normal(n // 2)
    z = np.concatenate([z, -z])
    st = s0 * np.exp((r - sigma**2 / 2) * t + sigma * np.sqrt(t) * z)
    pay = np.exp(-r * t) * np.maximum(st - k, 0)
    return pay.mean(), pay.std(ddof=1) / np.sqrt(n)
p, se = price_option()
from math import log, sqrt, exp, erf
N = lambda x: 0.5 * (1 + erf(x / sqrt(2)))
d1 = (log(100 / 105) + (0.03 + 0.02)) / 0.2
bs = 100 * N(d1) - 105 * exp(-0.03) * N(d1 - 0.2)
print(f"mc {p:.3f} ± {se:.3f}, exact {bs:.3f}, within 4 se: {abs(p - bs) < 4 * se}")
# %%
P = np.array([[0.9, 0.1, 0.0], [0.2, 0.7, 0.1], [0.0, 0.3, 0.7]])
state, visits = 0, np.zeros(3, int)
for _ in range(3000):
    state = rng.choice(3, p=P[state])
    visits[state] += 1
vals, vecs = np.linalg.eig(P.T)
pi = np.real(vecs[:, np.argmax(vals.real)])
pi /= pi.sum()
print(visits / visits.sum(), pi.round(4))
print(np.linalg.matrix_power(P, 50)[0].round(4))
