"""Where was I, what is next, what may I touch: bounded, and the same bytes for the same rows."""

from __future__ import annotations

from typing import Any

import pytest
from frame_trees import Grown
from hypothesis import given
from hypothesis import strategies as st

from rlm_memory import locks
from rlm_memory.frames.context import PER_TOKEN
from rlm_memory.work import holders, leases, paths, prime, progress

SEEN: dict[str, Any] = {
    "files_modified": ["src/auth.ts", "src/types.ts"],
    "uncommitted_changes": True,
    "last_commit": "a1b2c3d",
    "decisions": [{"decision": "JWT over sessions", "reason": "stateless"}],
    "test_results": {"ran": True, "passed": 12, "failed": 1, "failing_test": "auth.test.ts: expired"},
    "errors": [{"type": "TypeError", "file": "src/auth.ts:42", "message": "no"}],
    "context": "the hook of story f2",
}


def test_it_says_where_the_work_stands_and_what_is_next(grown: Grown) -> None:
    """E-6: of the frame that changed last in full, of the others in a line, then what is ready and what is claimed."""
    story = grown.plan("the story")
    frame, other = grown.push("add the login", story), grown.push("rewrite the docs")
    ready = grown.plan("tidy up")
    progress.update(grown.store, other.key, {"phase": "review"}, now=grown.now)
    progress.update(grown.store, frame.key, SEEN, now=grown.now + 1)
    paths.declare(grown.store, ready.key, ["/docs/", "/README.md"])
    holder = holders.enlist(grown.store, "connection", "p", label="p", now=grown.now)
    assert leases.claim(grown.store, holder, grown.root.tree, now=grown.now, key=ready.key) is not None
    last = grown.plan("at last")
    assert prime.assemble(grown.store, grown.root.tree).splitlines() == [
        "Goals of this repository, kept by rlm-kernel, and the state of the work on them:",
        f"Resuming {frame.id} from: testing, next: fix the failing test auth.test.ts: expired",
        f"{frame.id}: add the login",
        f"  below: {story.id} the story",
        "  files: src/auth.ts, src/types.ts (not committed)",
        "  tests: 12 passed, 1 failed: auth.test.ts: expired",
        "  last commit: a1b2c3d",
        "  decided: JWT over sessions (stateless)",
        "  error: TypeError at src/auth.ts:42: no",
        "  context: the hook of story f2",
        "Also in progress:",
        f"  {other.id}: rewrite the docs (review)",
        f"  {ready.id}: tidy up",
        f"Ready to begin: {last.id} at last",
        (
            f"Only those working on these frames may write to: README.md ({ready.id}), docs/ ({ready.id})."
            " Everything else is free."
        ),
        f"More: the tool frame(id='{frame.id}'), or `rlm-kernel frame {frame.id}`.",
    ]


def test_a_line_tells_of_the_lock_once_somebody_has_asked_for_it(grown: Grown) -> None:
    """L-8: an agent that begins learns where the project is shown; of another repository's lock it hears nothing."""
    grown.push("add the login")
    before = prime.assemble(grown.store, grown.root.tree)
    locks.note_version(grown.store, locks.ProjectRow("/elsewhere", "/elsewhere", 1, "a", 7, grown.now))
    assert prime.assemble(grown.store, grown.root.tree) == before
    locks.note_version(grown.store, locks.ProjectRow("/here", grown.root.tree, 3, "b", 1161, grown.now))
    line = "The project has 1,161 files: the tool lock shows it, and what has changed since your last call."
    said = prime.assemble(grown.store, grown.root.tree).splitlines()
    assert [one for one in said if one not in before.splitlines()] == [line]


@pytest.mark.parametrize(
    ("data", "phase", "step"),
    [
        ({"phase": "design", "next_step": "ask Ann", **SEEN}, "design", "ask Ann"),
        (SEEN, "testing", "fix the failing test auth.test.ts: expired"),
        ({"test_results": {"failed": 2}}, "testing", "fix the failing tests"),
        ({"uncommitted_changes": True}, "implementing", ""),
        ({"errors": SEEN["errors"]}, "work in progress", "look at TypeError in src/auth.ts:42"),
        (
            {"uncommitted_changes": True, "test_results": {"passed": 2, "failed": 0}},
            "implementing",
            "commit the changes",
        ),
        ({"last_commit": "a1b2c3d", "uncommitted_changes": False}, "committed", ""),
        ({"phase": ["odd"], "errors": "odd", "test_results": "odd"}, "['odd']", ""),
    ],
)
def test_what_was_told_comes_before_what_was_seen(data: dict[str, Any], phase: str, step: str) -> None:
    """An agent that writes its next step down reads that; one that writes nothing reads what hooks have seen."""
    assert (prime.phase(data), prime.next_step(data)) == (phase, step)


def test_nothing_is_said_of_a_tree_in_which_nothing_is_open(grown: Grown) -> None:
    """A hook then prints nothing, and costs no tokens."""
    assert prime.assemble(grown.store, grown.root.tree) == ""
    assert prime.assemble(grown.store, "/another/tree") == ""
    frame = grown.push("a goal")
    assert frame.id in prime.assemble(grown.store, grown.root.tree)
    grown.pop(frame)
    assert prime.assemble(grown.store, grown.root.tree) == ""


def test_the_bytes_are_those_of_the_rows_alone(grown: Grown) -> None:
    """A prompt cache keeps them: no time passes in them, and no other tree is in them."""
    frame = grown.push("a goal")
    for number in range(30):
        grown.now += 86_400.0 * (number % 3)
        grown.plan(f"planned {number}")
    progress.update(grown.store, frame.key, SEEN, now=grown.now)
    before = prime.assemble(grown.store, grown.root.tree)
    grown.now += 40 * 86_400.0
    assert prime.assemble(grown.store, grown.root.tree) == before


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=900),
    lambda inner: st.lists(inner, max_size=40) | st.dictionaries(st.text(max_size=30), inner, max_size=4),
    max_leaves=60,
)


FIELDS = (
    *("phase", "files_modified", "uncommitted_changes", "last_commit", "decisions", "test_results", "errors"),
    *("context", "next_step"),
)


@given(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=9), st.text(min_size=1, max_size=500))
def test_whatever_is_kept_fits(data: dict[str, Any], goal: str) -> None:
    """Six hundred tokens at most, whatever an agent or a hostile file name has put in."""
    lines = [*prime._fields(data), f"{prime.phase(data)} {prime.next_step(data)}", goal]
    assert all("\n" not in line for line in lines[:-1])
    text = prime._fitted(["head", *lines[:-1], *(f"  {line}" for line in lines[:-1] * 3), "tail"])
    assert len(text) <= prime.TOKENS * PER_TOKEN


def test_a_large_tree_fits(grown: Grown) -> None:
    """However many goals there are, the first is whole and the way to more is named."""
    for number in range(40):
        frame = grown.push(f"goal {number} " + "x" * 3000)
        progress.update(grown.store, frame.key, SEEN | {"context": "y" * 3000}, now=grown.now + number)
        paths.declare(grown.store, frame.key, [f"/folder-{number}/{'z' * 200}/"])
    text = prime.assemble(grown.store, grown.root.tree)
    assert len(text) <= prime.TOKENS * PER_TOKEN
    assert text.splitlines()[1].startswith(f"Resuming {frame.id} from: testing")
    assert text.endswith(f"`rlm-kernel frame {frame.id}`.")
