"""Sixty places where a person presses Tab or Shift-Tab, each with what a good kernel says there.

``|`` is the cursor. A kernel does well in a situation if it offers, or says, everything that is wanted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SETUP = '''
import collections, json, math, os, re
import numpy as np
import pandas as pd
from pathlib import Path

df = pd.DataFrame({"amount": [1.0, 2.5], "region": ["n", "s"], "unit price": [1, 2]})
array = np.array([[1, 2], [3, 4]])
d = {"alpha": 1, "al pha": 2, "beta": {"gamma": [1, 2]}, 7: "seven"}
greeting = "hello"

def margin(price: float, cost: float = 1.0, *, rounded: bool = False) -> float:
    """How much a sale earns."""
    return round(price - cost) if rounded else price - cost

class Order:
    """A sale."""
    tax = 0.19
    def __init__(self, customer: str, total: float):
        self.customer = customer
        self.total = total
    @property
    def gross(self) -> float:
        """The total with tax."""
        return self.total * (1 + self.tax)
    def ship(self, address: str, express: bool = False) -> "Order":
        """Send it."""
        return self

order = Order("Ada", 10.0)
'''


@dataclass(frozen=True, slots=True)
class Situation:
    """What is asked (``tab``, ``look`` for Shift-Tab, ``types`` for the metadata of Tab), where, and what is wanted."""

    asked: str
    text: str
    wanted: tuple[str, ...]


def _tab(text: str, *wanted: str) -> Situation:
    return Situation("tab", text, wanted)


def _look(text: str, *wanted: str) -> Situation:
    return Situation("look", text, wanted)


def _types(text: str, *wanted: str) -> Situation:
    return Situation("types", text, wanted)


SITUATIONS = (
    # names
    _tab("gree|", "greeting"),
    _tab("isinst|", "isinstance"),
    _tab("x = mar|", "margin"),
    _tab("whil|", "while"),
    _tab("print(gree|", "greeting"),
    _tab("f'{gree|", "greeting"),
    # attributes
    _tab("df.gro|", "groupby"),
    _tab("df.am|", "amount"),
    _tab("print(df.am|", "amount"),
    _tab("df.amount.su|", "sum"),
    _tab("df['amount'].su|", "sum"),
    _tab("df.region.str.upp|", "upper"),
    _tab("df.groupby('region').su|", "sum"),
    _tab("df.head().des|", "describe"),
    _tab("df.columns.to|", "tolist"),
    _tab("df.iloc[0].to_|", "to_dict"),
    _tab("pd.read_c|", "read_csv"),
    _tab("pd.read_csv('sales.csv').des|", "describe"),
    _tab("np.lin|", "linspace"),
    _tab("array.resh|", "reshape"),
    _tab("np.zeros(3).resh|", "reshape"),
    _tab("greeting.upp|", "upper"),
    _tab("greeting.strip().spl|", "split"),
    _tab("'a'.upp|", "upper"),
    _tab("[1, 2].app|", "append"),
    _tab("order.cust|", "customer"),
    _tab("order.|", "customer", "gross", "ship", "tax", "total"),
    _tab("order.ship('here').tot|", "total"),
    _tab("Order('Bo', 1.0).sh|", "ship"),
    _tab("os.path.jo|", "join"),
    _tab("Path('.').ex|", "exists"),
    _tab("for key in d.ke|", "keys"),
    _tab("(df.amount + 1).me|", "mean"),
    _tab("[row.am for row in df.iter|", "iterrows", "itertuples"),
    # keys
    _tab("df['|", "amount", "region", "unit price"),
    _tab("d['al|", "alpha", "al pha"),
    _tab("d['beta']['ga|", "gamma"),
    _tab('df[["amount", "re|', "region"),
    _tab("df.loc[0, 'am|", "amount"),
    # arguments
    _tab("margin(pri|", "price="),
    _tab("df.sort_values(asc|", "ascending="),
    _tab("margin(1, roun|", "rounded="),
    # files and modules
    _tab("open('sa|", "sales.csv"),
    _tab("pd.read_csv('sa|", "sales.csv"),
    _tab("open('data/20|", "2024.csv"),
    _tab("import ma|", "math"),
    _tab("from pandas import Da|", "DataFrame"),
    _tab("from math import sq|", "sqrt"),
    # names that the cell itself defines
    _tab("frame = pd.DataFrame()\nframe.gro|", "groupby"),
    _tab("def f(frame: pd.DataFrame):\n    return frame.gro|", "groupby"),
    # Shift-Tab
    _look("df.groupby|", "by", "DataFrame"),
    _look("df.groupby(|", "by", "as_index"),
    _look("margin(|", "price", "cost", "How much a sale earns"),
    _look("x = margin(1, |", "price", "rounded"),
    _look("print(|", "sep", "end"),
    _look("pd.read_csv('x', |", "sep", "Read a comma-separated values"),
    _look("order.ship|", "address", "Send it"),
    # the metadata
    _types("mar|", "margin: function", "price"),
    _types("df.gro|", "groupby: function", "by"),
    _types("greet|", "greeting: "),
)


def prepare(folder: Path) -> None:
    """Write the files that the situations complete."""
    (folder / "data").mkdir()
    for name in ("sales.csv", "data/2024.csv"):
        (folder / name).write_text("amount,region\n1,n\n")


def request(situation: Situation) -> tuple[str, str, int]:
    """Return the kind of the request that asks, the code, and the place of the cursor."""
    kind = "inspect_request" if situation.asked == "look" else "complete_request"
    return kind, situation.text.replace("|", ""), situation.text.index("|")


def missing(situation: Situation, content: dict[str, Any]) -> list[str]:
    """What is wanted in a situation, and is not in the content of a reply."""
    said = {"tab": _matches, "look": _description, "types": _metadata}[situation.asked](content)
    return [wanted for wanted in situation.wanted if wanted not in said]


def _matches(content: dict[str, Any]) -> set[str]:
    """The matches without what stands before the last dot or slash, and without a closing quote."""
    found = set(content["matches"])
    return (
        found | {match.rpartition(sign)[2].rstrip("'\"]") for match in found for sign in (".", "/", "'", '"')} | found
    )


def _description(content: dict[str, Any]) -> str:
    return str(content["data"].get("text/plain", ""))


def _metadata(content: dict[str, Any]) -> str:
    found = content["metadata"].get("_jupyter_types_experimental", [])
    return json.dumps([f"{one['text'].rpartition('.')[2]}: {one['type']} {one.get('signature', '')}" for one in found])
