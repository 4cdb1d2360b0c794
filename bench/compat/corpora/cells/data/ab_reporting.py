# %%
from dataclasses import dataclass
import math
import numpy as np, pandas as pd
rng = np.random.RandomState(17)
raw = pd.DataFrame({"variant": rng.choice(["A", "B"], 1000), "device": rng.choice(["ios", "web", "android"], 1000)})
raw["converted"] = rng.rand(1000) < np.where(raw.variant == "B", 0.14, 0.10)
raw["value"] = np.where(raw.converted, rng.gamma(2, 20, 1000), 0).round(2)
raw.groupby("variant").converted.agg(["sum", "count", "mean"])
# %%
@dataclass(slots=True)
class Rate:
    k: int
    n: int
    @property
    def p(self) -> float:
        return self.k / self.n
    def wilson(self, z: float = 1.96) -> tuple[float, float]:
        c = (self.p + z * z / (2 * self.n)) / (1 + z * z / self.n)
        h = z / (1 + z * z / self.n) * math.sqrt(self.p * (1 - self.p) / self.n + z * z / (4 * self.n**2))
        return round(c - h, 4), round(c + h, 4)
rates = {str(v): Rate(int(g.converted.sum()), len(g)) for v, g in raw.groupby("variant")}
for v, r in rates.items():
    print(v, r, f"{r.p:.3%}", r.wilson())
# %%
a, b = rates["A"], rates["B"]
pool = Rate(a.k + b.k, a.n + b.n)
z = (b.p - a.p) / math.sqrt(pool.p * (1 - pool.p) * (1 / a.n + 1 / b.n))
print(f"z={z:.3f}, p={math.erfc(abs(z) / math.sqrt(2)):.4f}")
seg = raw.pivot_table(index="device", columns="variant", values="converted", aggfunc=["mean", "size"])
seg.columns = [f"{stat}_{v}" for stat, v in seg.columns]
print(seg.assign(lift=lambda d: d.mean_B / d.mean_A - 1).round(3).to_string())
# %%
null = [np.diff(pd.Series(rng.permutation(raw.value)).groupby(raw.variant).mean())[0] for _ in range(200)]
obs = raw.groupby("variant").value.mean().diff().iloc[-1]
print(f"observed {obs:.3f}; permutation p = {(np.abs(null) >= abs(obs)).mean():.3f}")
print(raw[raw.converted].groupby("device").value.quantile([0.25, 0.5, 0.75]).unstack().round(1).to_string())
raw.value.where(raw.converted).dropna().skew().round(3)
# %%
print(raw.query("device == 'ios' and converted").value.to_numpy()[:5])
print(raw["revenue"].sum())
