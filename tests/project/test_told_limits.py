"""SECURITY.md and LIMITATIONS.md say what the code has: each number stands there as it is in force."""

import re
from pathlib import Path
from typing import Any

import pytest

from rlm_client.models import answer_schema
from rlm_contexts.helpers import requests as helper_requests
from rlm_contexts.loading import folder, members, patterns
from rlm_ipc import displays, framed_stream, json_size
from rlm_kernel.jupyter import sanitizer
from rlm_kernel.supervisor import attachments
from rlm_kernel.supervisor.cells import cell_history, cell_log, query_book
from rlm_kernel.supervisor.processes import fork_broker, kernel_json, worker_link
from rlm_kernel.supervisor.relay import output_router
from rlm_lock.listing import history
from rlm_lock.parsing import pool
from rlm_mcp.hook import program
from rlm_mcp.service import overview
from rlm_mcp.service.cells.runs import Waiting
from rlm_mcp.service.frames import artifacts, changes, frames
from rlm_mcp.service.queries import providers
from rlm_mcp.service.sessions import journal
from rlm_mcp.web import listener
from rlm_memory import sessions
from rlm_memory.frames import edges, results, summaries, transcript
from rlm_sandbox.os_wall import rlimits, syscalls
from rlm_sandbox.policy import load_policy, policy_names

NUMBERS = {2: "two", 3: "three", 5: "five", 10: "ten", 16: "sixteen", 20: "twenty", 40: "forty"}
MIB, GIB = 1 << 20, 1 << 30
PRIVATE: dict[str, Any] = {name: vars(module)[name] for module, name in (
    (sessions, "_MOST_ENDINGS"), (changes, "_MOST_AT_ONCE"), (frames, "_MOST_LISTED"), (members, "_MOST_MEMBERS"),
    (members, "_UNPACKED"), (members, "_SECONDS"), (overview, "_MOST_CELLS"), (overview, "_MOST_QUERIES"),
    (overview, "_MOST_VARIABLES"), (overview, "_LONGEST_TEXT"), (journal, "_GATHER_SECONDS"),
)}  # fmt: skip


def in_words(number: float) -> str:
    """A number as the pages write small ones."""
    return NUMBERS[round(number)]


SECURITY = [
    f"(for the latest {PRIVATE['_MOST_ENDINGS']:,})",
    f"{in_words(fork_broker.MOST_AT_ONCE)} in a fiftieth of a second",
    f"and {len(syscalls.PROBED)} by which libraries ask where memory may lie",
    f"{listener.MOST_CONNECTIONS} such connections stay open, for {in_words(listener.SECONDS_TO_ASK)} seconds",
    f"texts of an event over {program.LARGEST_WHOLE >> 10} KiB",
    f"From {program.LARGEST_SPOOL // MIB} MiB on, hooks drop events",
    f"may use {worker_link.MOST_UNFINISHED // GIB} GiB for them",
    f"the first {cell_history.PREVIEW_CHARS} characters of its code",
    f"takes {framed_stream.MESSAGES_A_TURN} messages from each kernel at a time",
    f"beyond `limits.queries` at {query_book.QUERIES_A_SECOND:.0f} a second",
    f"of an attachment {attachments.MOST_UNREAD_BYTES // MIB} MiB wait",
    f"The log takes {in_words(output_router.MOST_FAULTS)} faults of a session",
    f"Machine code may open {rlimits.RESERVED_FILES} files more",
    f"and take {rlimits.RESERVED_BYTES // MIB} MiB more than `limits.memory_bytes`",
    f"forks in the first {in_words(fork_broker.FORGIVING_SECONDS)} seconds",
    f"of the last {history.MOST_COMMITS:,} commits",
    f"{in_words(pool.SECONDS_A_FILE)} seconds of processor time a file",
    f"and {in_words(pool.SECONDS_LOST)} seconds that slow files may waste",
]
LIMITATIONS = [
    f"longer than {Waiting().longest:.0f} seconds is still `running`",
    f"leaves something out of an answer over {load_policy('compat').limits.answer_chars:,} characters",
    f"takes more than {kernel_json.LARGEST_JSON // MIB} MiB, or more than a million values",
    f"An answer over {worker_link.MAX_KERNEL_PAYLOAD // MIB} MiB",
    f"up to {displays.MOST_KEPT_CHARS >> 10} KiB of a cell",
    f"{displays.MOST_KEPT_CHARS >> 10} Ki characters, {sanitizer.MOST_TAGS:,} tags, or {sanitizer.MOST_FORMATTED} tags",
    f"At most {results.MOST_ITEMS} of them count, of the first {artifacts.MOST_LOOKED_AT:,} files",
    f"more than {artifacts.DEEPEST} folders down",
    f"A frame keeps {transcript.MOST_ROWS:,} notes and calls, and {transcript.MOST_BYTES // MIB} MiB of them",
    f"at most {summaries.RECORD:,} tokens (estimated) of the frame's turns",
    f"follow {changes.MOST_FOLLOWED} resources of frames, and all clients of a daemon {PRIVATE['_MOST_AT_ONCE']}",
    f"shows at most {PRIVATE['_MOST_LISTED']} frames",
    f"at most {edges.MOST_EDGES:,} edges in each direction",
    f"{folder.MOST_FILES:,} files, {folder.DEEPEST} levels deep, and an archive {PRIVATE['_MOST_MEMBERS']:,}",
    f"A pattern may match {patterns.MOST_MATCHES:,}",
    f"may lead through {folder.MOST_ENTRIES:,} files and folders",
    f"unpacked for {in_words(PRIVATE['_SECONDS'] / 60)} minutes at most",
    f"At most {PRIVATE['_UNPACKED'] // GIB} GiB is unpacked of",
    f"at most {query_book.MOST_CHARACTERS:,} characters together",
    f"for {in_words(answer_schema.LONGEST_SECONDS)} seconds at most",
    f"the latest {PRIVATE['_MOST_CELLS']} cells, {PRIVATE['_MOST_QUERIES']} open queries",
    f"and {PRIVATE['_MOST_VARIABLES']} variables, each text up to {PRIVATE['_LONGEST_TEXT']:,} characters",
]


def page(root: Path, name: str) -> str:
    """A page without its line breaks."""
    return " ".join((root / name).read_text(encoding="utf-8").split())


@pytest.mark.parametrize("said", SECURITY)
def test_the_security_page_has_the_numbers_in_force(said: str, root: Path) -> None:
    """A limit that is changed has to be said where a reviewer reads of it."""
    assert said in page(root, "SECURITY.md")


@pytest.mark.parametrize("said", LIMITATIONS)
def test_the_page_of_limits_has_the_numbers_in_force(said: str, root: Path) -> None:
    """Who meets a limit finds it on the page with the number that stopped them."""
    assert said in page(root, "LIMITATIONS.md")


def test_numbers_that_the_pages_write_in_words(root: Path) -> None:
    """These are in the code in other units than people say them."""
    assert json_size.MOST_VALUES == 1 << 20  # "about a million values"
    assert cell_log.MOST_CHARS == MIB  # "the latest mebibyte of code and output"
    assert fork_broker.PAUSE_SECONDS == 1 / 50  # "a fiftieth of a second"
    assert PRIVATE["_GATHER_SECONDS"] == 1 / 20  # "the last twentieth of a second"
    assert vars(providers)["_REST"] == 1 / 2  # "at most half a second after it came"
    assert vars(helper_requests)["_ARCHIVE_SECONDS"] == PRIVATE["_SECONDS"]  # "ten minutes"


def test_the_page_names_every_builtin_that_the_wall_replaces(root: Path) -> None:
    """The list of SECURITY.md is that of `_core.c`: one more there has to be said here."""
    core = (root / "sandbox/rlm_sandbox/language_wall/_core.c").read_text(encoding="utf-8")
    table = core.split("ORIGINALS[] = {")[1].split("};")[0]
    said = page(root, "SECURITY.md").split("Such a frame may call ")[1].split(", or make a class")[0]
    assert set(re.findall(r"`(\w+)`", said)) == set(re.findall(r'"(\w+)"', table))


def test_no_policy_that_ships_lets_data_out(root: Path) -> None:
    """SECURITY.md says so of URLs and of providers; `trusted` alone has the network, on purpose."""
    places = [root / "policies", root / "policies/samples"]
    shipped = {name: load_policy(name, directories=places) for name in policy_names(directories=places)}
    assert len(shipped) > 8
    assert [name for name, policy in shipped.items() if policy.urls or policy.llm.permits("provider")] == []
    assert [name for name, policy in shipped.items() if policy.network] == ["trusted"]
    writers = [name for name, policy in shipped.items() if "${workspace}" in policy.files.write]
    assert writers == ["tables", "trusted"]
    assert [name for name, policy in shipped.items() if policy.walls.private] == ["strict", "untrusted"]
