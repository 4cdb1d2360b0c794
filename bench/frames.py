"""Do frames help? A scripted agent works through two tasks, with its context kept in four ways; no model, no network.

``flat`` shows the model everything. ``compaction`` summarizes when the window overflows, ``pruning`` masks and folds:
both are `rlm_memory.transcripts`, with extracts for summaries, since a script has no model. ``frames`` makes a frame of
each goal: the model is shown the assembled context and the frame's own turns, and every frame is popped without a
summary, so that only the product's extract tells what came of it. A frame costs two calls more, for push and pop.

Printed are the peak, all tokens of all prompts, the share of them that a provider's cache has from the prompt before,
and what is charged when a cached token costs a tenth. Forty facts stand in the output of cells, where dice put them.
After the work each is looked for: in what the model is shown, in extracts, in the frames' logs, in texts that every
fifth frame handed over, and by `scan` over all logs without knowing where.

    python bench/frames.py [--svg docs/images/frames.svg]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from frames_plot import drawn
from frames_script import Cell, Fact, Work, log_investigation, repository_task

from rlm_contexts.search.scan import scan
from rlm_contexts.store.store import ContextStore
from rlm_contexts.text.model import StoredText
from rlm_ipc.session_record import RecordedCell, SessionRecord
from rlm_mcp.formats.frame_log import as_log
from rlm_mcp.service.frames.records import record_of_frame
from rlm_memory import journal, sessions
from rlm_memory.frames import ending, tree
from rlm_memory.frames.context import assemble
from rlm_memory.frames.results import HandedOver, Outcome
from rlm_memory.frames.rows import FrameRow, compaction_of, get
from rlm_memory.frames.runtime import handed_over
from rlm_memory.frames.states import Kind, Status
from rlm_memory.journal import Author, JournalEntry
from rlm_memory.store import Store
from rlm_memory.transcripts import ContextManager, ContextPruner, PruningConfig

WINDOW = 128_000
"""Tokens of a model's window, at which the ways without frames compact and prune."""
SYSTEM = "You work in sessions of a Python kernel. " * 120
"""As long as the descriptions of a few tools."""
MOST_PEAK = 0.25
"""Share of the flat peak that frames may have."""
Message = dict[str, Any]


@dataclass
class Usage:
    """What the calls of one way have used."""

    active: list[int] = field(default_factory=list)
    cached: int = 0
    _before: list[str] = field(default_factory=list)

    def call(self, messages: Iterable[Message]) -> None:
        """Count a call of the model with these messages."""
        prompt = [str(message["content"]) for message in messages]
        self.active.append(sum(map(len, prompt)) // 4)
        for now, before in zip(prompt, self._before, strict=False):
            same = now == before
            self.cached += len(now) if same else _common(now, before)
            if not same:
                break
        self._before = prompt

    @property
    def total(self) -> int:
        """Tokens of all prompts."""
        return sum(self.active)

    @property
    def hits(self) -> float:
        """Share of them that the prompt before began with."""
        return self.cached / 4 / self.total

    @property
    def cost(self) -> int:
        """Tokens, of which a cached one counts a tenth, as providers charge it."""
        return round(self.total * (1 - 0.9 * self.hits))


@dataclass
class Way:
    """One way to keep a context: its name, its calls, and in how many places each fact was found."""

    name: str
    usage: Usage
    found: dict[str, set[Fact]]


def _common(one: str, other: str) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low


def _said(cell: Cell) -> str:
    return f"{cell.thought}\n```repl\n{cell.code}\n```"


# --- one transcript -------------------------------------------------------------------------------


def transcript(name: str, work: Work, shrink: Callable[[ContextManager], object]) -> Way:
    """Keep the whole work in one conversation; ``shrink`` is called before each call of the model."""
    config = PruningConfig(max_tokens=WINDOW, strategy="summarize")
    context, usage = ContextManager(ContextPruner(config)), Usage()
    context.add_system_message(SYSTEM)
    told = f"{work.title}. Begin."
    for step in work.steps:
        told += f"\n{step.goal}"
        for cell in step.cells:
            context.add_user_message(told, _kept_at="the journal")
            shrink(context)
            usage.call(context.get_active_context("full"))
            context.update_last_assistant(_said(cell))
            told = cell.output
    context.add_user_message(told)
    shown, whole = (
        "\n".join(str(message["content"]) for message in messages)
        for messages in (context.get_active_context("full"), context.rebuild())
    )
    found = {
        "shown": {fact for fact in work.facts if fact.value in shown},
        "record": {fact for fact in work.facts if fact.value in whole},
    }
    return Way(name, usage, found)


def compacted(context: ContextManager) -> None:
    """Summarize when the window overflows."""
    if context.stats()["estimated_tokens"] > WINDOW:
        asyncio.run(context.compress())


# --- frames ---------------------------------------------------------------------------------------


class Framed:
    """The work with a frame for each goal, in a real store."""

    def __init__(self, work: Work, store: Store, texts: ContextStore) -> None:
        self._work = work
        self._store = store
        self._texts = texts
        self._now = 1000.0
        self.usage = Usage()
        self.logs: dict[int, StoredText] = {}
        policy = sessions.PolicyText("default", "{}", "")
        self._session = sessions.open_session(
            store, work.title, workspace="", policy=policy, idle_seconds=9.0, now=self._now
        )
        self._root = tree.of_session(store, self._session, author="bench", now=self._now)
        self._frames: list[FrameRow] = []

    def run(self) -> Way:
        """Work; then look for the facts."""
        at, upper = -1, self._root
        for number, step in enumerate(self._work.steps):
            if step.story != at:
                if at >= 0:
                    self._pop(upper)
                at, upper = step.story, self._push(self._root, self._work.stories[step.story], Kind.STORY)
            self._worked(number, step.cells, self._push(upper, step.goal, Kind.TASK))
        self._pop(upper)
        return Way("frames", self.usage, self._found())

    def _push(self, parent: FrameRow, goal: str, kind: Kind) -> FrameRow:
        self._call(parent, [])
        planned = tree.plan(self._store, tree.Plan(goal, kind=kind), parent.key, author="bench", now=self._now)
        return tree.start(self._store, planned.key, author="bench", now=self._now, session=self._session.key)

    def _worked(self, number: int, cells: Sequence[Cell], frame: FrameRow) -> None:
        own = ContextManager()
        told = "Go on."
        for cell in cells:
            own.add_user_message(told)
            own.fold_if_full()
            self._call(frame, own.get_active_context("full"))
            own.update_last_assistant(_said(cell))
            self._now += 1
            times = (self._now, self._now + 0.5)
            entry = JournalEntry(self._session.key, Author.AGENT, cell.code, *times, "ok", cell.output, frame=frame.key)
            journal.append(self._store, [entry])
            told = cell.output
        own.add_user_message(told)
        self._call(frame, own.get_active_context("full"))
        values = []
        if number % 5 == 0:
            stored = self._texts.put_text("\n".join(cell.output for cell in cells))
            values = [HandedOver("details", stored.digest, stored.size, "text")]
        self._frames.append(frame)
        self._pop(frame, values)

    def _pop(self, frame: FrameRow, values: Sequence[HandedOver] = ()) -> None:
        if frame.kind is Kind.STORY:
            self._call(frame, [])
        outcome = Outcome(Status.COMPLETED, hand_over=[value.name for value in values])
        ending.pop(self._store, frame.key, outcome, values, author="bench", now=self._now)
        cells = tuple(map(_as_cell, journal.of_frame(self._store, frame.key)))
        record = SessionRecord(session=frame.id, policy="default", state="idle", cells=cells)
        about = record_of_frame(self._store, get(self._store, frame.key))
        self.logs[frame.key] = self._texts.put_text(as_log(about, (), record))

    def _call(self, frame: FrameRow, own: list[Message]) -> None:
        told = assemble(self._store, frame.key)
        self.usage.call([{"role": "system", "content": SYSTEM}, {"role": "system", "content": told}, *own])

    def _found(self) -> dict[str, set[Fact]]:
        """Look for each fact by every road, with the product's own means."""
        asking = self._push(self._root, "Answer what is asked about all of it", Kind.TASK)
        shown = assemble(self._store, asking.key)
        everything = self._texts.put_chunks(self._bytes_of(log) for log in self.logs.values())
        found: dict[str, set[Fact]] = {road: set() for road in ("shown", "extract", "log", "handle", "scan")}
        for fact in self._work.facts:
            frame = self._frames[fact.step]
            compaction = compaction_of(self._store, frame.key)
            handed = [self._texts.get(value.digest) for value in handed_over(self._store, frame.key)]
            roads = {
                "shown": fact.value in shown,
                "extract": compaction is not None and fact.value in compaction.text,
                "log": self._finds(self.logs[frame.key], fact),
                "handle": any(self._finds(value, fact) for value in handed),
                "scan": self._finds(everything, fact),
            }
            for road, reached in roads.items():
                if reached:
                    found[road].add(fact)
        return found

    def _finds(self, stored: StoredText, fact: Fact) -> bool:
        """Search a text for what is asked, and read the answer off the matching line."""
        matches = scan(self._texts.open(stored), fact.name, fixed=True).matches
        return any(fact.value in match.text for match in matches)

    def _bytes_of(self, stored: StoredText) -> bytes:
        return self._texts.open(stored).content.encode()


def _as_cell(entry: JournalEntry) -> RecordedCell:
    return RecordedCell(
        number=entry.number, author=entry.author, code=entry.code, started_at=entry.started_at,
        ended_at=entry.ended_at, status=entry.status, output=entry.output,
    )  # fmt: skip


# --- figures --------------------------------------------------------------------------------------


def measured(work: Work, folder: Path) -> list[Way]:
    """Work through a task in every way."""
    folder.mkdir()
    store, texts = Store.open(folder / "rows.db"), ContextStore(folder / "texts")
    return [
        transcript("flat", work, lambda _: None),
        transcript("compaction", work, compacted),
        transcript("pruning", work, ContextManager.fold_if_full),
        Framed(work, store, texts).run(),
    ]


def printed(work: Work, ways: Sequence[Way]) -> None:
    """Print a table of the ways, and one of where the facts are."""
    flat = ways[0].usage
    print(f"\n{work.title}: {len(work.steps)} goals, {sum(len(step.cells) for step in work.steps)} cells")
    heads = f"{'of flat':>9}{'all prompts':>14}{'cached':>8}{'not cached':>13}{'charged':>13}"
    print(f"  {'':12}{'calls':>7}{'peak':>10}{heads}")
    for way in ways:
        usage = way.usage
        peak = max(usage.active)
        print(
            f"  {way.name:12}{len(usage.active):>7,}{peak:>10,}{peak / max(flat.active):>9.1%}"
            f"{usage.total:>14,}{usage.hits:>8.1%}{round(usage.total * (1 - usage.hits)):>13,}{usage.cost:>13,}"
        )
    for way in ways:
        roads = ", ".join(f"{road} {len(facts)}" for road, facts in way.found.items())
        nowhere = len(work.facts) - len(set().union(*way.found.values()))
        print(f"  {way.name:12}facts of {len(work.facts)}: {roads}; nowhere {nowhere}")


def main() -> int:
    """Measure both tasks; returns 1 when frames do not hold what they promise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--svg", type=Path, help="write the picture to this file")
    options = parser.parse_args()
    works = [repository_task(), log_investigation()]
    with tempfile.TemporaryDirectory(prefix="rkb") as folder:
        results = [measured(work, Path(folder, str(number))) for number, work in enumerate(works)]
    for work, ways in zip(works, results, strict=True):
        printed(work, ways)
    framed = [ways[-1] for ways in results]
    answered = sum(len(set().union(*way.found.values())) for way in framed)
    untold = sum(len(work.facts) - len(way.found["extract"]) for work, way in zip(works, framed, strict=True))
    facts = sum(len(work.facts) for work in works)
    peak = max(max(ways[-1].usage.active) / max(ways[0].usage.active) for ways in results)
    kept = answered == facts == 40 and untold >= 10 and peak <= MOST_PEAK
    print(f"\nframes: {answered} of {facts} facts found, {untold} of them in no extract; peak {peak:.1%} of flat")
    print("kept" if kept else f"NOT KEPT: all of 40, ten of them in no extract, at most {MOST_PEAK:.0%}")
    if options.svg:
        panels = {
            work.title: {way.name: way.usage.active for way in ways} for work, ways in zip(works, results, strict=True)
        }
        options.svg.write_text(drawn(panels))
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
