# %%
import pandas as pd
s = pd.Series(["ERR-102: disk full (sda1)", "WARN-7: slow (sdb2)", "ok", None, "ERR-9: disk full (sdc)"])
parts = s.str.extract(r"^(?P<kind>[A-Z]+)-(?P<code>\d+): (?P<msg>.*?) \((?P<dev>\w+)\)$")
print(parts.to_string())
print(s.str.len().tolist(), s.str.contains("disk", na=False).tolist())
# %%
parts["code"] = parts["code"].astype("Int64")
print(parts.dtypes.astype(str).to_dict()["code"], parts.code.sum(), parts.kind.fillna("-").str.lower().tolist())
def severity(row):
    if pd.isna(row.kind):
        return 0
    return {"ERR": 10, "WARN": 3}[row.kind] + len(row.dev)
parts["sev"] = parts.apply(severity, axis=1)
print(parts[["kind", "sev"]])
parts.sort_values("sev", ascending=False).iloc[0].to_dict()
# %%
tags = pd.DataFrame({"id": [1, 2, 3], "tags": ["a|b", "b", "a|c|b"]})
print(tags.tags.str.get_dummies("|"))
e = tags.assign(tag=tags.tags.str.split("|")).explode("tag").drop(columns="tags")
print(e.groupby("tag").id.agg(list).to_dict())
print(pd.crosstab(e.id, e.tag).to_string())
# %%
tags["tags"].str.nosuch()
# %%
d = tags.set_index("id")["tags"].map(lambda t: t.count("|") + 1)
print(d.to_dict(), d.index.name, d.rename("n").reset_index().values.tolist())
with pd.option_context("display.max_rows", 4):
    print(pd.Series(range(20)) ** 2)
