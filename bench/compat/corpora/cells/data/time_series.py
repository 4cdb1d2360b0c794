# %%
import numpy as np, pandas as pd
idx = pd.date_range("2023-01-01", periods=365, freq="D")
r = np.random.RandomState(5)
s = pd.Series(20 + 8 * np.sin(2 * np.pi * (np.arange(365) - 100) / 365) + r.normal(0, 1.5, 365), index=idx, name="temp").round(2)
s.iloc[[10, 11, 50, 200]] = np.nan
print(s.head(3), s.isna().sum())
s.describe().round(2)
# %%
filled = s.interpolate("time")
print(filled.iloc[9:13].round(2).tolist())
monthly = filled.resample("MS").agg(["mean", "min", "max"]).round(1)
monthly.index = monthly.index.strftime("%b")
print(monthly.T.to_string())
# %%
roll = filled.rolling(30, center=True).mean()
anom = (filled - roll).dropna()
z = (anom - anom.mean()) / anom.std()
print(z[z.abs() > 2.5].round(2).to_dict())
print(filled.groupby(filled.index.dayofweek).mean().round(2).rename(dict(enumerate("Mon Tue Wed Thu Fri Sat Sun".split()))).to_dict())
# %%
print(filled["2023-07"].mean().round(2), filled.loc["2023-03-01":"2023-03-03"].tolist())
print(filled.autocorr(1).round(3), filled.shift(1).corr(filled).round(3), filled.diff().abs().idxmax())
q = filled.resample("QE").mean().pct_change().round(3)
q
# %%
local = pd.Series(range(4), index=pd.date_range("2024-03-31 00:30", periods=4, freq="h", tz="UTC"))
print(local.tz_convert("Europe/Berlin"))
p = pd.period_range("2024-01", periods=3, freq="M")
print([str(x) for x in p], pd.Timedelta("1 days 02:30:00").total_seconds(), pd.bdate_range("2024-12-30", periods=3).day_name().tolist())
