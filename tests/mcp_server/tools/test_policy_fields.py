"""Every field of a policy, loosened and tightened: the same calls under both, and what differs.

Each case writes two policy files that differ in one field, opens a session under each and does the same in both.
Under the tight one the field's refusal appears, under the loose one the thing is done. Fields that no case names fail
`test_every_field_of_the_schema_has_a_case`.
"""

import asyncio
import dataclasses
import json
import os
import socket
import textwrap
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from mcp_types import CreateMessageResult, TextContent
from model_endpoint import Reply
from waiting import until

from rlm_sandbox.errors import PolicyFileError
from rlm_sandbox.os_wall import private_root
from rlm_sandbox.policy import load_policy
from rlm_sandbox.policy.model import Limits, Policy

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("supervisor")]

Probe = Callable[[Any, Any, Any], Awaitable[str]]
"""Do what the field governs, through an agent; the other arguments are the service and its clock."""

OFF = {"language.wall": "off", "language.blocked_names": [], "walls.require": []}
"""Without the language wall it is the operating system's walls that show the effect."""
SOON = {"limits.cell_seconds": 1.5}


def cell(code: str, then: str = "") -> Probe:
    """Run a cell, then maybe another; the answer of the last as text. WORKSPACE stands for the session's folder."""

    async def probe(agent: Any, own: Any, clock: Any) -> str:
        answer = await agent.run(textwrap.dedent(code).replace("WORKSPACE", agent.handshake.cwd))
        return json.dumps(await agent.run(then) if then else answer)

    return probe


async def load_two_kilobytes(agent: Any, own: Any, clock: Any) -> str:
    """Load a text."""
    return json.dumps(await agent("load_context", name="text", content="x" * 2048))


async def load_from_beside_the_workspace(agent: Any, own: Any, clock: Any) -> str:
    """Load a file that the user can read, and no code of the session."""
    Path(agent.handshake.cwd).with_name("beside.txt").write_text("beside")
    return json.dumps(await agent("load_context", name="beside", path="../beside.txt"))


async def show_a_long_goal(agent: Any, own: Any, clock: Any) -> str:
    """Begin a frame, and look at its context."""
    began = await agent("push", goal="x" * 1200, fork=False)
    shown = await agent("frame")
    assert shown["context"] == began["context"]
    return str(began["context"])


async def pop_without_a_summary(agent: Any, own: Any, clock: Any) -> str:
    """End a goal of which nobody says what came of it."""
    goal = (await agent("push", goal="count"))["frame"]
    return "a model" if "pending_llm_queries" in await agent("pop", id=goal) else "an extract"


async def idle_two_minutes(agent: Any, own: Any, clock: Any) -> str:
    """Let time pass between two cells."""
    await agent.run("kept = 'still here'")
    clock.now += 120
    return json.dumps(await agent.run("kept"))


async def count_the_files(agent: Any, own: Any, clock: Any) -> str:
    """Ask the project's lock for counts."""
    return json.dumps(await agent("lock", priority="P3"))


async def weigh_the_rules(agent: Any, own: Any, clock: Any) -> str:
    """Ask the project's lock how severe its rules are."""
    answer = await agent("lock", fields=["rules"])
    return json.dumps([rule["severity"] for rule in answer["content"]["rules"]["rules"]])


async def undo_a_cell(agent: Any, own: Any, clock: Any) -> str:
    """Run two cells and undo the second."""
    await agent.run("n = 1")
    await agent.run("n = 2")
    return json.dumps(await agent("rollback"))


async def come_back(agent: Any, own: Any, clock: Any) -> str:
    """Save a session, let it idle away, and use it again."""
    await agent.run("kept = 'come back'")
    session = (await agent("status"))["session"]
    await own.save_session(session, None, embed=True)
    clock.now += 7201
    return json.dumps(await agent.run("kept"))


async def wait_for_nobody(agent: Any, own: Any, clock: Any) -> str:
    """Ask what nobody answers, until that is an error."""
    answer = await agent.run("llm_query('p')")
    if answer.get("status") == "waiting":  # on a busy machine the time may be up before that is told
        wait = partial(agent, "wait", run=answer["run"])
        answer = await until(wait, lambda told: told.get("status") != "waiting")
    return json.dumps(answer)


async def rest_two_minutes(agent: Any, own: Any, clock: Any) -> str:
    """Idle away, rest, and come back two minutes after that."""
    await agent.run("kept = 'come back'")
    for seconds in (7201, 120):
        clock.now += seconds
        await own.sweep()
    return json.dumps(await agent.run("kept"))


async def wait_unanswered(agent: Any, own: Any, clock: Any) -> str:
    """Ask what nobody answers, idle away, and come back two minutes after that."""
    await agent("load_context", name="log", content="x")
    await agent.run("llm_query('p')")
    for seconds in (7201, 120):
        clock.now += seconds
        await own.sweep()
    return json.dumps(await agent("list_vars"))


async def list_tools(agent: Any, own: Any, clock: Any) -> str:
    """Ask which tools there are."""
    return " ".join(tool.name for tool in (await agent.client.list_tools()).tools) + "."


async def show_a_picture(agent: Any, own: Any, clock: Any) -> str:
    """Show a grey square of eight by eight pixels, and look at it."""
    square = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAAAAADhZOFXAAAADklEQVR4nGNogAIGyhgAgIQgAQ2AJGEAAAAASUVORK5CYII="
    code = f"import base64\nclass Square:\n    def _repr_png_(self): return base64.b64decode({square!r})\nSquare()"
    await agent.run(code)
    return json.dumps(await agent("view_images"))


async def connect_to_a_server(agent: Any, own: Any, clock: Any) -> str:
    """Read what a server on this machine says to whoever connects."""

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        return await cell(f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 20).recv(99)")(
            agent, own, clock
        )


SITE = "http://127.0.0.1:0/"
"""Stands in the cases for the address that a test's own `site` has."""


@pytest.fixture
def site() -> Iterator[socket.socket]:
    """Listen before a policy names the port, so that nobody else is given it."""
    with socket.create_server(("127.0.0.1", 0)) as site:
        yield site


def address(site: socket.socket) -> str:
    """Return the URL of a site."""
    return f"http://127.0.0.1:{site.getsockname()[1]}/"


async def load_a_page(agent: Any, own: Any, clock: Any) -> str:
    """Load what a web server on this machine has."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        writer.close()

    async with await asyncio.start_server(serve, sock=agent.site.dup()):
        return json.dumps(await agent("load_context", name="page", path=address(agent.site) + "page"))


@dataclass(frozen=True)
class Case:
    """One field, two values of it, and what shows the difference."""

    field: str
    tight: Any
    loose: Any
    probe: Probe
    refused: str
    """What only the answer under the tight policy holds."""
    done: str
    """What only the answer under the loose policy holds."""
    both: dict[str, Any] = field(default_factory=dict)
    """Other fields, alike in both."""
    extends: str | None = "default"


SCRATCH = "import os, tempfile\nfolder = tempfile.mkdtemp()\n"
CHMOD = """
    import os, tempfile
    file = tempfile.mkdtemp() + '/f'
    open(file, 'w').close()
    os.chmod(file, 0o640)
    oct(os.stat(file).st_mode)
"""
OUTLIVE = """
    import time
    def clean_up():
        end = time.monotonic() + 2.5
        while True:
            try:
                while time.monotonic() < end:
                    time.sleep(0.05)
                return
            except KeyboardInterrupt:
                pass
    try:
        time.sleep(30)
    except KeyboardInterrupt:
        clean_up()
        cleaned = 'cleaned up'
"""
THREADS = """
    import threading, time
    stop = threading.Event()
    for _ in range(20):
        threading.Thread(target=stop.wait, args=(8,)).start()
    time.sleep(5)
    stop.set()
    print('all ran')
"""
FILL = (
    SCRATCH
    + """
import time
for number in range(120):
    with open(f'{folder}/{number}', 'w') as file:
        file.write('x' * 4096)
    time.sleep(0.04)
print('all written')
"""
)

CASES = [
    Case("language.wall", "restricted", "off", cell("type(().__class__.__base__.__subclasses__())"),
         "__subclasses__", '"result": "list"', {"language.blocked_names": [], "walls.require": []}),
    Case("language.blocked_names", ["eval"], [], cell("eval('6 * 7')"), "eval", '"result": "42"'),
    Case("language.imports", ["math"], ["math", "statistics"], cell("import statistics\nstatistics.mean([1, 3])"),
         "language.imports", '"result": "2"'),
    Case("files.read", ["${scratch}"], ["${scratch}", "${workspace}"], cell("open('WORKSPACE/data.txt').read()"),
         "outside the readable folders", "'here'"),
    Case("files.read", ["${scratch}"], ["${scratch}", "${workspace}"], cell("open('WORKSPACE/data.txt').read()"),
         "PermissionError", "'here'", OFF),
    Case("files.write", ["${scratch}"], ["${workspace}"], cell("open('WORKSPACE/new.txt', 'w').write('four')"),
         "outside the writable folders", '"result": "4"'),
    Case("files.write", ["${scratch}"], ["${workspace}"], cell("open('WORKSPACE/new.txt', 'w').write('four')"),
         "PermissionError", '"result": "4"', OFF),
    Case("files.metadata", False, True, cell(CHMOD), "0o100600", "0o100640"),
    Case("files.metadata", False, True, cell(CHMOD), "0o100600", "0o100640", OFF),
    Case("files.load", "workspace", "user", load_from_beside_the_workspace, "files.load: workspace", '"size": 6'),
    Case("network", False, True, connect_to_a_server, "PermissionError", "b'hello'", OFF),
    Case("urls", [], [SITE], load_a_page, "does not permit", '"size": 5'),
    Case("limits.cell_seconds", 0.4, 30, cell("import time\ntime.sleep(2)\n'awake'"), "CellTimeout", "'awake'"),
    Case("limits.interrupt_grace_seconds", 0.1, 20, cell(OUTLIVE, "cleaned"), "NameError", "'cleaned up'", SOON),
    Case("limits.output_bytes", 100, 10_000, cell("print('x' * 400 + 'y')"), "limit of 100 bytes", "xxxy"),
    Case("limits.content_bytes", "1 KiB", "1 MiB", load_two_kilobytes, "exceed", '"size": 2048'),
    Case("limits.memory_bytes", "100 MiB", "600 MiB", cell("len(bytearray(200 << 20))"), "MemoryError", "209715200"),
    Case("limits.open_files", 32, 256, cell(SCRATCH + "len([open(f'{folder}/{n}', 'w') for n in range(60)])"),
         "Too many open files", '"result": "60"'),
    Case("limits.file_bytes", "64 KiB", "1 MiB", cell(SCRATCH + "open(folder + '/f', 'w').write('x' * 200_000)"),
         "File too large", '"result": "200000"'),
    Case("limits.scratch_bytes", "64 KiB", "10 MiB", cell(FILL), "ScratchLimit", "all written"),
    Case("limits.threads", 4, 64, cell(THREADS), '"success": false', "all ran"),
    Case("limits.processes", 0, 8, cell("import subprocess\nsubprocess.run(['/bin/echo', 'ran']).returncode"),
         "PermissionError", '"result": "0"', extends="trusted"),
    Case("limits.rollback_cells", 0, 1, undo_a_cell, "cannot_undo", '"undone"', {"checkpoint": "strict"}),
    Case("limits.queries", 1, 10, cell("len([llm_query('one?'), llm_query('two?')])"), "QueryLimit", '"result": "2"'),
    Case("limits.query_tokens", 1, 99, cell("llm_query('p'), llm_query('q')"), "BudgetExceeded", "echo: q",
         {"llm.mode": "provider"}),
    Case("limits.query_cost", 0.0001, 1.0, cell("llm_query('p'), llm_query('q')"), "BudgetExceeded", "echo: q",
         {"llm.mode": "provider"}),
    Case("limits.query_seconds", 0.1, 60.0, cell("llm_query('slow')"), "BudgetExceeded", "echo: slow",
         {"llm.mode": "provider"}),
    Case("limits.query_depth", 0, 1, cell("rlm_query('p')"), "echo: p", "worked by itself", {"llm.mode": "provider"}),
    Case("limits.idle_seconds", 60, 600, idle_two_minutes, "NameError", "still here", {"reopen": False}),
    Case("limits.rest_seconds", 60, 600, rest_two_minutes, "NameError", "come back"),
    Case("limits.unanswered_seconds", 60, 600, wait_unanswered, ": 1 text", "variables are gone", {"reopen": False}),
    Case("limits.refused_attempts", 3, 0, cell("import os\nfor _ in range(5):\n    try: os.kill(1, 0)\n"
         "    except PermissionError: pass\n6 * 7"), "session_ended", '"result": "42"', OFF),
    Case("limits.image_bytes", 10, 10_000, show_a_picture, "limits.image_bytes", '"width": 8'),
    Case("limits.answer_chars", 300, 8000, cell("print('x' * 2000)"), "full_output", "x" * 2000),
    Case("limits.context_tokens", 600, 4000, show_a_long_goal, "x\N{HORIZONTAL ELLIPSIS}</goal>",
         f"{'x' * 1200}</goal>"),
    Case("walls.require", ["process_creation"], [], cell("6 * 7"), "process_creation", '"result": "42"',
         {"limits.processes": 1}, "trusted"),
    Case("walls.private", True, False, cell("import os\nos.path.exists('/etc/passwd')"),
         '"result": "False"', '"result": "True"', OFF),
    Case("llm.mode", "deferred", "blocking", cell("llm_query('p')"), "[DEFERRED:q_000]", '"status": "waiting"'),
    Case("llm.modes", [], ["provider"], cell("llm_query('p', mode='provider')"), "PermissionError", "echo: p"),
    Case("llm.schema_attempts", 2, 3, cell("llm_query('third', schema={'type': 'integer'})"),
         "2 answers did not fit", '"result": "3"', {"llm.mode": "provider"}),
    Case("llm.sampling", False, True, cell("llm_query('p')"), '"status": "waiting"', "'the client: p'",
         {"llm.mode": "blocking"}),
    Case("llm.cache", False, True, cell("llm_query('count') == llm_query('count')"), '"result": "False"',
         '"result": "True"', {"llm.mode": "provider"}),
    Case("llm.summaries", False, True, pop_without_a_summary, "an extract", "a model"),
    Case("llm.wait_seconds", 0.1, 1.5, wait_for_nobody, "within 0.1 s", "within 1.5 s", {"llm.mode": "blocking"}),
    Case("lock.fields", ["rules"], ["project"], count_the_files, "does not allow project", '"count"'),
    Case("lock.severe_rules", ["AGENTS.*"], ["docs/**"], weigh_the_rules, '["P0"]', '["P1"]'),
    Case("checkpoint", "off", "strict",
         cell("kept = 'kept it'\nimport os\nos.getpid()", "import signal\nos.kill(os.getpid(), signal.SIGKILL)"),
         "are lost", "as they were before", OFF),
    Case("reopen", False, True, come_back, "NameError", "come back"),
    Case("tools", "core", "all", list_tools, "plan push pop frame.", "end_session"),
    Case("extends", "strict", "default", cell("import os\nos.sep"), "language.imports", "'/'", extends=None),
]  # fmt: skip

NO_EFFECT = {
    "name": "names the policy in reports and refusals",
    "description": "is for people",
}
"""Fields with which nothing can be loosened or tightened."""

AT_THE_ATTACHMENTS = {
    "attachments.mode": "test_a_policy_may_keep_front_ends_out",
    "attachments.interrupt": "test_a_policy_may_let_front_ends_interrupt_the_agent_and_begin_anew",
    "attachments.restart": "test_a_policy_may_let_front_ends_interrupt_the_agent_and_begin_anew",
    "attachments.trusted": "test_a_developers_own_code_runs_in_a_copy_of_which_nothing_comes_back",
}
"""Fields whose effect a front end has to see, and the tests in test_attachments.py that loosen and tighten them."""

AT_THE_DISK = {
    "limits.unsaved_seconds": "test_variables_outlive_the_machine",
    "limits.unsaved_cells": "test_what_was_not_saved_in_time_is_told",
}
"""Fields whose effect only the end of a machine shows, and the tests in test_durable.py."""


@pytest.fixture
def model(endpoint: Any, isolation: Any) -> None:
    """Configure a model that echoes; it counts to ``third``, never says the same to ``count``, and may be slow."""

    def reply(asked: Any) -> Reply:
        number = len(endpoint.requests)
        if "third" in str(asked.body):
            return Reply("3" if number == 3 else "not yet")
        if asked.messages[0]["role"] == "system":
            return Reply("FINAL(worked by itself)")
        return Reply(f"{number}" if asked.prompt == "count" else f"echo: {asked.prompt}", delay=asked.prompt == "slow")

    endpoint.reply = reply
    endpoint.configure(isolation.config, input_price=1000.0, output_price=1000.0)


async def own_model(context: Any, params: Any) -> CreateMessageResult:
    """Answer as the client's own model."""
    text = f"the client: {params.messages[0].content.text}"
    return CreateMessageResult(role="assistant", content=TextContent(text=text), model="own")


def fields(section: Any, prefix: str = "") -> Iterator[str]:
    """Every field of the schema that holds a value, by its dotted name."""
    for part in dataclasses.fields(section):
        if dataclasses.is_dataclass(part.default):
            yield from fields(part.default, f"{prefix}{part.name}.")
        else:
            yield prefix + part.name


def nested(values: dict[str, Any]) -> dict[str, Any]:
    """``{"limits.threads": 4}`` as the file has it."""
    made: dict[str, Any] = {}
    for name, value in values.items():
        *sections, last = name.split(".")
        place = made
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = value
    return made


def test_every_field_of_the_schema_has_a_case() -> None:
    """K-28: a field whose effect nobody has proved is a promise that nobody keeps."""
    elsewhere = {"test_attachments.py": AT_THE_ATTACHMENTS, "test_durable.py": AT_THE_DISK}
    proved = {field for tests in elsewhere.values() for field in tests}
    assert {case.field for case in CASES} | NO_EFFECT.keys() | proved == set(fields(Policy))
    for file, tests in elsewhere.items():
        text = (Path(__file__).parents[1] / "service" / file).read_text()
        assert all(f"def {name}(" in text for name in tests.values())


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("case", CASES, ids=[f"{case.field}{'-os' * (case.both is OFF)}" for case in CASES])
async def test_a_field_can_be_loosened_and_tightened(
    case: Case, connect_own: Any, own: Any, clock: Any, isolation: Any, tmp_path: Path, site: socket.socket
) -> None:
    """K-28: the same calls are refused under the tight value and done under the loose one."""
    if case.field == "walls.private" and (refusal := private_root.try_out(os.geteuid())):
        pytest.skip(refusal)
    answers = {}
    for value in ("tight", "loose"):
        folder = tmp_path / value
        folder.mkdir()
        (folder / "data.txt").write_text("here")
        (folder / "AGENTS.md").write_text("Be kind.\n")
        settings = {**({"extends": case.extends} if case.extends else {}), **case.both}
        path = isolation.config / "policies" / f"{value}.yaml"
        path.parent.mkdir(exist_ok=True)
        rules = yaml.safe_dump(nested({**settings, case.field: getattr(case, value)}))
        path.write_text(rules.replace(SITE, address(site)))
        async with connect_own(value, cwd=str(folder), sampling=own_model, RLM_KERNEL_POLICY=value) as agent:
            agent.site = site
            answers[value] = await case.probe(agent, own, clock)
    assert case.refused in answers["tight"], answers
    assert case.refused not in answers["loose"], answers
    assert case.done in answers["loose"], answers
    assert case.done not in answers["tight"], answers


async def test_a_session_works_under_the_largest_numbers_that_a_file_may_have(connect_own: Any, isolation: Any) -> None:
    """Whoever wants no limit writes a large number. Under one that was accepted, no kernel could start."""
    limits = {part.name: part.metadata["le"] for part in dataclasses.fields(Limits)}
    path = isolation.config / "policies" / "most.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump({"extends": "default", "limits": limits, "llm": {"wait_seconds": 10**9}}))
    async with connect_own("most", cwd=str(isolation.root), RLM_KERNEL_POLICY="most") as agent:
        assert (await agent.run("asked = llm_query('q')\nbudget()['tokens']['limit']"))["result"] == str(10**12)
        assert await agent("status")


def test_a_way_to_answer_queries_that_the_schema_does_not_have_is_refused(tmp_path: Path) -> None:
    """K-28: what cannot be chosen is refused, not ignored."""
    path = tmp_path / "mine.yaml"
    path.write_text("llm: {mode: sampling}\n")
    with pytest.raises(PolicyFileError, match="deferred"):
        load_policy(str(path))


def test_the_name_is_that_of_the_file_and_the_description_its_own(tmp_path: Path) -> None:
    """K-28: a policy that extends another does not pass for it."""
    path = tmp_path / "mine.yaml"
    path.write_text("description: Mine.\nextends: default\n")
    policy = load_policy(str(path))
    assert (policy.name, policy.description) == ("mine", "Mine.")
