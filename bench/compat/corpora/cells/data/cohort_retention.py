# %%
import io, pandas as pd
csv = "user,ts\n" + "\n".join(
    f"u{u},2024-{m:02d}-{(u * 7 + m * 3) % 27 + 1:02d}" for u in range(1, 31) for m in range(1 + u % 3, 7) if (u * m) % 4 != 3 or m == 1 + u % 3
)
ev = pd.read_csv(io.StringIO(csv), parse_dates=["ts"])
ev.info(memory_usage=False, buf=(b := io.StringIO()))
print(b.getvalue().splitlines()[1], ev.ts.min(), ev.ts.max())
ev.sample(3, random_state=1)
# %%
ev["month"] = ev.ts.dt.to_period("M")
ev["cohort"] = ev.groupby("user").month.transform("min")
ev["age"] = (ev.month - ev.cohort).apply(lambda x: x.n)
ret = ev.groupby(["cohort", "age"]).user.nunique().unstack()
print(ret.to_string())
# %%
rate = ret.div(ret[0], axis=0).round(2)
print(rate.to_string(na_rep="."))
print(rate.mean().round(3).to_dict())
# %%
def streak(months):
    m = sorted({p.ordinal for p in months})
    best = cur = 1
    for a, b in zip(m, m[1:]):
        cur = cur + 1 if b == a + 1 else 1
        best = max(best, cur)
    return best
st = ev.groupby("user").month.agg(streak)
print(st.value_counts().sort_index().to_dict(), st.idxmax())
ev.groupby("cohort").agg(users=("user", "nunique"), events=("user", "count"), last=("ts", "max"))
# %%
gaps = ev.sort_values(["user", "ts"]).groupby("user").ts.diff().dt.days
print(gaps.describe().round(1).to_string())
print(ev.loc[gaps.nlargest(3).index, ["user", "ts"]].to_string(index=False))
