"""Tab and Shift-Tab: what they offer, and that they neither run code of the session nor show what its policy hides."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import tab_situations
from jupyter_client import AsyncKernelClient
from waiting import SECONDS

from rlm_ipc.supervisor_protocol import SpawnRequest
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_sandbox.policy import load_policy

pytestmark = pytest.mark.anyio


class Asked:
    """A session, as a front end sees it that presses keys."""

    def __init__(self, supervisor: SupervisorClient, kernel_id: str, client: AsyncKernelClient) -> None:
        self._supervisor, self._kernel, self._client = supervisor, kernel_id, client

    async def run(self, code: str) -> str:
        """Run a cell, which is to succeed; the text of its value."""
        result = await self._supervisor.execute(self._kernel, code).result()
        assert result.error is None, result.error
        return str(result.result)

    async def ask(self, kind: str, code: str, cursor: int, **options: Any) -> dict[str, Any]:
        """Send a request, and wait for its reply."""
        message = self._client.session.msg(kind, {"code": code, "cursor_pos": cursor, **options})
        self._client.shell_channel.send(message)
        async with asyncio.timeout(SECONDS):
            while True:
                got = await self._client.shell_channel.get_msg()
                if got["parent_header"].get("msg_id") == message["header"]["msg_id"]:
                    return dict(got["content"])

    async def tab(self, text: str) -> list[str]:
        """What Tab offers at the end of a text."""
        return list((await self.ask("complete_request", text, len(text)))["matches"])

    async def look(self, text: str) -> str:
        """What Shift-Tab shows at the end of a text."""
        content = await self.ask("inspect_request", text, len(text), detail_level=1)
        return str(content["data"].get("text/plain", ""))


@pytest.fixture
async def session(supervisor: SupervisorClient, tmp_path: Path) -> AsyncIterator[Asked]:
    """A session for data analysis in a folder of its own."""
    folder = tmp_path / "work"
    folder.mkdir()
    tab_situations.prepare(folder)
    info = await supervisor.spawn(SpawnRequest(uuid.uuid4().hex[:12], str(folder)), load_policy("data"))
    client = AsyncKernelClient()
    client.load_connection_info(info.connection)
    client.start_channels(hb=False)
    yield Asked(supervisor, info.kernel_id, client)
    client.stop_channels()
    await supervisor.shutdown(info.kernel_id)


async def test_sixty_situations_are_answered(session: Asked) -> None:
    """In each, Tab and Shift-Tab say what is wanted; `bench/completion.py` has the same of the ordinary kernel."""
    await session.run(tab_situations.SETUP)
    assert len(tab_situations.SITUATIONS) == 60
    lacking = {}
    for situation in tab_situations.SITUATIONS:
        content = await session.ask(*tab_situations.request(situation))
        if missing := tab_situations.missing(situation, content):
            lacking[situation.text] = missing, content
    assert lacking == {}


TRAPS = '''
ran = []

def trap(name, gives=None):
    def sprung(*given, **named):
        ran.append(name)
        return gives
    return sprung

class Meta(type):
    __instancecheck__ = trap("isinstance", False)
    __subclasscheck__ = trap("issubclass", False)
    __len__ = trap("metaclass len", 1)
    __bool__ = trap("metaclass bool", True)
    __iter__ = trap("metaclass iter", [])
    __lt__ = trap("metaclass lt", True)
    __repr__ = trap("metaclass repr", "repr")
    __dir__ = trap("metaclass dir", ["spring"])
    doc = property(trap("metaclass property"))

class Text(str):
    __eq__ = trap("equality", True)
    __hash__ = lambda self: str.__hash__(self)
    __str__ = __repr__ = trap("text", "text")
    startswith = trap("startswith", True)

class Trap(metaclass=Meta):
    """A doc."""
    plain = 1
    __getattr__ = trap("__getattr__")
    __dir__ = trap("__dir__", ["spring"])
    __repr__ = __str__ = trap("repr", "repr")
    __len__ = trap("len", 1)
    __iter__ = trap("iter", iter([]))
    __getitem__ = trap("getitem")
    __eq__ = trap("eq", True)
    __lt__ = trap("lt", True)
    __hash__ = lambda self: hash("alpha")
    __bool__ = trap("bool", True)
    __call__ = trap("call")
    __add__ = trap("add")
    __keys__ = keys = trap("keys", ["a"])
    _ipython_key_completions_ = trap("key completions", ["a"])
    _repr_html_ = trap("html", "")
    columns = property(trap("columns", []))
    made = property(trap("property"))

    def method(self, first="x") -> "Trap":
        """A method."""
        ran.append("method")

class Descriptor:
    __get__ = trap("descriptor")
    __set_name__ = lambda *_: None

class Holder:
    held = Descriptor()

class Mapping(dict):
    __getitem__ = keys = __iter__ = items = get = __contains__ = trap("mapping", [])

def function(value=Trap(), *, text=Text("default")) -> Text("annotation"):
    """A function."""

function.__doc__ = Text("doc")
made = Trap()
holder = Holder()
mapping = Mapping(alpha=1)
hostile = {Text("alpha"): 1, Trap(): 2, "alphabet": {"inner": made}}
listed = [made, Trap, {made: made}]
import pandas as pd
table = pd.DataFrame({Text("alpha"): [1], "alphabet": [made]}, dtype=object)
array = made
ran.clear()
'''
PLACES = (
    "made",
    "made.",
    "made.ma",
    "made.made",
    "made.made.",
    "made.method",
    "made.method(",
    "made.method().",
    "made.columns.",
    "made.nothing.",
    "made[",
    "made['",
    "made['al",
    "made().",
    "(made + 1).",
    "Trap.",
    "Trap.method(",
    "Trap(",
    "Trap().",
    "Text",
    "Meta.",
    "function",
    "function(",
    "function(va",
    "function().",
    "holder.held",
    "holder.held.",
    "mapping['",
    "mapping['al",
    "mapping['alpha'].",
    "mapping.",
    "hostile['al",
    "hostile['alpha'].",
    "hostile['alphabet']['inner'].",
    "hostile[",
    "hostile",
    "listed[0].",
    "listed[1].",
    "listed[2][",
    "listed",
    "table['al",
    "table.al",
    "table",
    "table.",
    "table.groupby('al",
    "array(1).",
    "array(",
    "made.__class__.",
    "x = made\nx.",
    "def f(x: Trap):\n    x.",
    "with made as x:\n    x.",
    "f'{made.",
)


async def test_nothing_that_is_completed_or_looked_at_runs_code_of_the_session(session: Asked) -> None:
    """Neither methods, nor properties, descriptors, metaclasses, or the equality of keys."""
    await session.run(TRAPS)
    sprung = {}
    for place in PLACES:
        await session.tab(place)
        await session.look(place)
        if (found := await session.run("ran[:]")) != "[]":
            sprung[place] = found
        await session.run("ran.clear()")
    assert sprung == {}


async def test_what_can_be_told_without_code_is_told_of_hostile_objects(session: Asked) -> None:
    """Plain keys, plain attributes and docstrings are there beside what is left out."""
    await session.run(TRAPS)
    assert await session.tab("hostile['al") == ["alphabet"]
    assert await session.tab("mapping['al") == ["alpha"]
    assert "plain" in await session.tab("made.pl")
    assert "A doc." in await session.look("made")
    assert "A method." in await session.look("made.method(")
    assert "function(value=<Trap>, *, text=<Text>)" in await session.look("function(")


async def test_names_that_the_policy_hides_are_not_offered(session: Asked) -> None:
    """Modules that are not admitted, private parts of libraries, and the plumbing of the kernel."""
    await session.run("import pandas as pd, os, sys\nclass Own:\n    def __init__(self): self._kept = 1\nown = Own()")
    assert await session.tab("import subpro") == []
    assert await session.tab("import soc") == []
    assert await session.tab("from os import sys") == []
    assert await session.tab("from subprocess import ") == []
    assert await session.tab("os.exe") == []
    assert await session.tab("pd._l") == []
    assert await session.tab("pd.DataFrame()._m") == []
    assert await session.tab("sys.setprof") == []
    assert await session.tab("().__class__.__base__.__sub") == []
    assert await session.tab("get_ip") == []
    assert await session.tab("__bui") == []
    assert await session.tab("own.__class__.__init__.__glo") == []
    assert await session.tab("own._k") == ["_kept"], "what the session itself defines is its own"
    assert await session.look("os.execv(") == ""
    assert await session.look("__builtins__") == ""
    assert await session.look("eval(") == ""


async def test_files_outside_the_policys_folders_are_not_offered(session: Asked, tmp_path: Path) -> None:
    """Not by an absolute path, by dots, or through a link that leads out."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key.pem").write_text("")
    (tmp_path / "work" / "link").symlink_to(tmp_path / "secret")
    assert await session.tab("open('data/") == ["2024.csv"]
    assert await session.tab("open('/etc/pass") == []
    assert await session.tab("open('../sec") == []
    assert await session.tab("open('link/") == []
    assert await session.tab(f"open('{tmp_path}/secret/") == []
    assert await session.tab("open('\0") == []


async def test_columns_come_first_and_names_in_their_order(session: Asked) -> None:
    """A front end shows matches as they come, and finds what is typed next among them only."""
    await session.run("import numpy as np, pandas as pd\ndf = pd.DataFrame({'amount': [1.0], 'region': ['n']})")
    offered = await session.tab("df.")
    assert offered[0] == "amount"
    assert {"agg", "where", "xs"} <= set(offered)
    assert (await session.tab("df.groupby('"))[:2] == ["amount", "region"]
    names = [name for name in await session.tab("np.") if not name.startswith("_")]
    assert names == sorted(names)
    assert {"array", "linspace", "where"} <= set(names)


async def test_much_is_looked_at_in_parts(session: Asked) -> None:
    """A front end asks at each key press, also in a session with many names and long dictionaries."""
    await session.run("many = {f'key{n}': n for n in range(300_000)}")
    await session.run("class Names(dict): pass\nheld = Names(many)")
    assert len(await session.tab("many['key")) == 1000
    assert len(await session.tab("held['key1")) == 1000
    assert "append" in await session.tab(f"x = {'[' * 90}1{']' * 90}\nx.")
    assert await session.tab("(" * 3000) != []
    assert await session.tab("x" + ".y" * 5000 + ".") == []


async def test_a_source_is_shown_of_cells_and_not_of_libraries(session: Asked) -> None:
    """The files of libraries are not the session's to read here."""
    await session.run("import textwrap\ndef own(x):\n    return x + 1\n")
    assert "return x + 1" in await session.look("own")
    assert "Source" not in await session.look("textwrap.dedent")


async def test_types_and_signatures_are_in_the_metadata(session: Asked) -> None:
    """As JupyterLab reads them, for each match in its order."""
    await session.run("def own(x: int, *, y=2) -> str: ...")
    content = await session.ask("complete_request", "ow", 2)
    assert content["metadata"]["_jupyter_types_experimental"] == [
        {"start": 0, "end": 2, "text": "own", "type": "function", "signature": "(x: int, *, y=2) -> str"}
    ]
    json.dumps(content["matches"])
