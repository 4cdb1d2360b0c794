# %%
import pandas as pd
customers = pd.DataFrame({"cid": [1, 2, 3, 4], "name": ["Ana", "Bo", "Cid", "Dan"], "country": ["PT", "SE", "ES", "PT"]})
orders = pd.DataFrame({"oid": range(100, 107), "cid": [1, 1, 2, 5, 3, 1, 2], "total": [20, 35.5, 12, 99, 7.25, 60, 41]})
m = customers.merge(orders, on="cid", how="outer", indicator=True)
print(m.to_string())
print(m._merge.value_counts().to_dict())
# %%
print("customers without orders:", m.loc[m._merge == "left_only", "name"].tolist())
print("orphan orders:", m.query("_merge == 'right_only'").oid.astype(int).tolist())
agg = orders.groupby("cid")["total"].agg(["count", "sum", "max"])
full = customers.join(agg, on="cid").fillna({"count": 0, "sum": 0})
full["count"] = full["count"].astype(int)
full
# %%
try:
    customers.merge(orders, on="cid", validate="one_to_one")
except pd.errors.MergeError as e:
    print("MergeError:", str(e)[:60])
rates = pd.DataFrame({"oid_from": [0, 102, 105], "rate": [1.0, 1.1, 1.2]})
asof = pd.merge_asof(orders, rates, left_on="oid", right_on="oid_from")
asof["eur"] = (asof.total / asof.rate).round(2)
print(asof)
# %%
long = full.melt(id_vars=["name"], value_vars=["sum", "max"], var_name="what", value_name="v").dropna()
print(long.sort_values(["name", "what"]).to_string(index=False))
print(long.set_index(["name", "what"]).unstack().to_string())
pd.concat([customers.head(1), customers.tail(1)], keys=["first", "last"])
