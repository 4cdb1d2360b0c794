# %%
import json
import pandas as pd
payload = json.loads("""[
 {"id": 1, "who": {"age": 31, "lang": ["py", "js"]}, "answers": [{"q": "a", "v": 4}, {"q": "b", "v": 2}]},
 {"id": 2, "who": {"age": 45, "lang": ["c"]}, "answers": [{"q": "a", "v": 5}]},
 {"id": 3, "who": {"age": null, "lang": []}, "answers": [{"q": "b", "v": 1}, {"q": "a", "v": 3}]}
]""")
people = pd.json_normalize(payload).drop(columns="answers")
print(people.to_string())
# %%
ans = pd.json_normalize(payload, record_path="answers", meta=["id", ["who", "age"]])
print(ans.dtypes.astype(str).to_dict())
wide = ans.pivot(index="id", columns="q", values="v")
print(wide)
wide.mean().to_dict()
# %%
likert = pd.Categorical.from_codes([3, 1, 4, 0, 2], ["never", "rarely", "some", "often", "always"], ordered=True)
s = pd.Series(likert)
print(s.sort_values().tolist(), s.max(), (s >= "some").tolist(), s.cat.codes.tolist())
try:
    s.iloc[0] = "sometimes"
except TypeError as e:
    print("TypeError:", str(e)[:50])
# %%
full = people.merge(wide, left_on="id", right_index=True)
full["nlang"] = full["who.lang"].map(len)
print(full.drop(columns="who.lang").rename(columns=lambda c: c.split(".")[-1]).to_string(index=False))
print(full[["a", "b", "nlang"]].corr().round(2).to_string())
full.loc[5]
# %%
mi = pd.MultiIndex.from_product([["x", "y"], [1, 2]], names=["g", "k"])
d = pd.DataFrame({"v": [1, 2, 3, 4], "w": [4.5, 3, 2, 1]}, index=mi)
print(d.loc["x"], d.xs(2, level="k"), d.unstack("k").to_string(), sep="\n")
print(d.swaplevel().sort_index().index.tolist(), d.groupby(level="g").sum().to_dict(), d.loc[("y", 1), "w"])
