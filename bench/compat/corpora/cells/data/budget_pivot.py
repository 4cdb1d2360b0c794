# %%
import pandas as pd
from collections import defaultdict
book = """
2024-01-03 rent -900
2024-01-10 food -120.40
2024-01-28 salary 2500
2024-02-03 rent -900
2024-02-09 food -99.9
2024-02-14 gifts -45
2024-02-28 salary 2500
2024-03-03 rent -950
2024-03-20 food -133.3
2024-03-28 salary 2600
"""
recs = [dict(zip(("date", "cat", "amount"), l.split())) for l in book.strip().splitlines()]
df = pd.DataFrame(recs).astype({"amount": float})
df["date"] = pd.to_datetime(df["date"])
df.tail(3)
# %%
p = df.assign(m=df.date.dt.month_name().str[:3]).pivot_table(index="cat", columns="m", values="amount", aggfunc="sum", fill_value=0, sort=False)
p["total"] = p.sum(axis=1)
print(p.to_string())
print(p.loc[p.total.sort_values().index, ["total"]].T)
# %%
bal = df.set_index("date").amount.cumsum().rename("balance")
print(bal.resample("ME").last().to_dict())
dd = bal - bal.cummax()
print("worst drawdown", dd.min(), "on", dd.idxmin().date())
limits = defaultdict(lambda: 100, rent=920)
over = df[df.apply(lambda r: -r.amount > limits[r["cat"]], axis=1)]
print(over.to_string(index=False, formatters={"amount": "{:+.2f}".format}))
# %%
styled = df.copy()
styled["amount"] = styled.amount.map("{:>10,.2f}".format)
print(styled.to_string(index=False, header=False))
print(df.select_dtypes("number").agg(["sum", "mean", "std"]).round(2).to_dict())
df.groupby("cat").apply(lambda g: g.nlargest(1, "amount").amount.iloc[0], include_groups=False)
# %%
for (cat, month), g in df.groupby(["cat", df.date.dt.month]):
    if cat in {"food", "gifts"}:
        print(cat, month, len(g), g.amount.sum())
for row in df.head(2).itertuples():
    print(row.Index, row.cat, row.amount)
print(next(df.iterrows())[1].tolist()[1:], df.eval("amount * -1").sum())
