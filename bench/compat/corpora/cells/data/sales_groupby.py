# %%
import numpy as np
import pandas as pd
rng = np.random.default_rng(0)
n = 200
df = pd.DataFrame({
    "region": rng.choice(["north", "south", "west"], n),
    "product": rng.choice(list("ABC"), n, p=[0.5, 0.3, 0.2]),
    "units": rng.integers(1, 20, n),
    "price": rng.normal(10, 2, n).round(2),
    "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 90, n), unit="D"),
})
print(df.shape)
print(df.dtypes)
df.head()
# %%
df["revenue"] = df.units * df.price
g = df.groupby(["region", "product"]).agg(n=("units", "size"), units=("units", "sum"), rev=("revenue", "sum"), avg=("price", "mean"))
print(g.round(2).to_string())
# %%
pt = df.pivot_table(index="region", columns="product", values="revenue", aggfunc="sum", margins=True)
print(pt.round(0).astype(int))
print(pt.div(pt["All"], axis=0).round(3).to_string())
# %%
weekly = df.set_index("day").sort_index().revenue.resample("W").sum()
print(weekly.round(1).to_string())
print(weekly.rolling(3).mean().dropna().round(1).tolist())
print(f"best week {weekly.idxmax():%Y-%m-%d} with {weekly.max():,.2f}")
# %%
df["rank"] = df.groupby("region").revenue.rank(ascending=False, method="first").astype(int)
top = df[df["rank"] <= 2].sort_values(["region", "rank"])[["region", "rank", "product", "units", "revenue"]]
print(top.to_string(index=False, float_format="%.1f"))
share = df.groupby("region").revenue.transform("sum")
(df.revenue / share).groupby(df.region).max().round(4)
