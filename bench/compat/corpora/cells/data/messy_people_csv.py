# %%
import io
import pandas as pd
raw = """name; age ;city;joined;salary
 Ann Lee ;34;Berlin;2020-01-15;"52,000"
bob stone;n/a;berlin ;15/03/2021;48000
Cy  Twombly;29;PARIS;2019-07-01;
Dee;abc;;2022-12-31;61000.5
bob stone;n/a;berlin ;15/03/2021;48000
"""
df = pd.read_csv(io.StringIO(raw), sep=";")
print(df)
print(df.columns.tolist())
# %%
df.columns = df.columns.str.strip().str.lower()
df = df.drop_duplicates().reset_index(drop=True)
df["name"] = df["name"].str.strip().str.replace(r"\s+", " ", regex=True).str.title()
df["city"] = df["city"].str.strip().str.capitalize().fillna("?")
df["age"] = pd.to_numeric(df["age"], errors="coerce")
df["salary"] = pd.to_numeric(df["salary"].str.replace(",", ""))
print(df.to_string())
# %%
def parse(s):
    for fmt in ("%Y-%m-%d", "%d/%m/%Y"):
        try:
            return pd.to_datetime(s, format=fmt)
        except ValueError:
            pass
    return pd.NaT
df["joined"] = df["joined"].map(parse)
print(df.joined.dt.strftime("%d %b %y").tolist(), df.joined.dt.year.value_counts().sort_index().to_dict())
df.isna().sum()
# %%
df["salary"] = df.salary.fillna(df.salary.median())
df["band"] = pd.cut(df.salary, [0, 50_000, 60_000, float("inf")], labels=["low", "mid", "high"])
print(df[["name", "salary", "band"]])
print(df.groupby("band", observed=False).size().to_dict())
df["nosuch"]
# %%
out = df.assign(first=df.name.str.split().str[0], initials=df.name.str.findall(r"\b[A-Z]").str.join("")).query("salary > 50000 and city != '?'")
print(out.to_csv(index=False))
print(out.to_json(orient="records", date_format="iso"))
print(df.name.str.extract(r"(?P<f>\w+)\s*(?P<l>\w*)").to_dict("records"))
