"""What is opened is what was judged: whenever somebody renames, nothing from outside is ever loaded."""

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from rlm_contexts.loading import folder
from rlm_ipc import discovery
from rlm_mcp.service.service import Service

pytestmark = pytest.mark.anyio
CALLS = ("open", "stat", "lstat", "readlink", "scandir", "listdir")
"""What goes to the system with a name."""
SECRET = "from outside"
POLICY = "extends: default\nfiles: {{read: ['{folder}'], write: []}}\n"


class Swapping:
    """Two names change places before one step of a load: the nth call that goes to the system with a name.

    ``pairs`` are what changes places, all in one folder; only names in that folder count. Where code has judged one
    thing and then opens another by the same name, one of the steps falls between the two.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *pairs: tuple[Path, Path]) -> None:
        self._pairs = pairs
        self._left: list[int] = []
        folder = pairs[0][0].parent
        self._folder, self._above = f"{folder}/", folder.parts
        for name in CALLS:
            monkeypatch.setattr(os, name, self._watched(getattr(os, name)))

    def swap(self) -> None:
        """Change them."""
        for one, other in self._pairs:
            spare = one.with_name("spare")
            os.rename(one, spare)
            os.rename(other, one)
            os.rename(spare, other)

    @contextmanager
    def at(self, *steps: int) -> Iterator[list[int]]:
        """Change them before each of these steps, counted from the one before; gives those that did not come."""
        self._left = list(steps)
        try:
            yield self._left
        finally:
            if (len(steps) - len(self._left)) % 2:
                self.swap()
            self._left = []

    def _watched(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(path: Any, *args: Any, **kwargs: Any) -> Any:
            # In steps from the root, by a descriptor, or by the whole name; the folders above stay what they are.
            name = str(path)
            counts = name not in self._above if name[:1] != "/" else name.startswith((self._folder, "/proc/self/fd/"))
            if self._left and counts:
                self._left[0] -= 1
                if self._left[0] < 0:
                    del self._left[0]
                    self.swap()
            return call(path, *args, **kwargs)

        return watched


@pytest.fixture
def ground(tmp_path: Path) -> tuple[Path, Path]:
    """A folder that may be read and in which somebody renames, and one that may not be read; both look the same."""
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for place, text in ((inside / "notes", "harmless"), (outside, SECRET)):
        place.mkdir(parents=True)
        (place / "a.txt").write_text(text)
    (inside / "other").symlink_to(outside)
    (inside / "file").write_text("harmless")
    (inside / "link").symlink_to(outside / "a.txt")
    return inside, outside


@pytest.fixture
def remote(connect: Any, isolation: Any, ground: tuple[Path, Path]) -> Any:
    """A client that may load what its policy lets code read: the folder inside."""
    (isolation.config / "policies").mkdir()
    (isolation.config / "policies" / "held.yaml").write_text(POLICY.format(folder=ground[0]))
    return connect(RLM_KERNEL_POLICY="held")


async def loaded(agent: Any, swapping: Swapping, path: str) -> dict[str, int]:
    """Load a path as often as it has steps, with another one changed each time, for good and until the next.

    Nothing of what arrives comes from outside. Returns how many loads came to what.
    """
    came: dict[str, int] = {}
    for back in ((), (0,)):
        for step in itertools.count():
            with swapping.at(step, *back) as left:
                answer = await agent("load_context", name="x", path=path)
            what = answer.get("error", "loaded")
            came[what] = came.get(what, 0) + 1
            if what == "loaded":
                text = (await agent("peek", name="x", max_chars=100_000))["content"]
                assert SECRET not in text, (path, step, back)
            if left:
                break
    return came


@pytest.mark.parametrize("name", ["notes/a.txt", "file", "notes", "notes/*.txt", "*/a.txt"])
@pytest.mark.parametrize("is_swapped", [False, True])
async def test_a_remote_client_gets_nothing_from_outside_by_a_rename(
    remote: Any, ground: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, name: str, is_swapped: bool
) -> None:
    """K-21: for folders and files that change places with links: paths, folders and patterns."""
    inside, _ = ground
    async with remote as agent:
        assert "error" not in await agent("load_context", name="x", path=f"{inside}/{name}")
        swapping = Swapping(monkeypatch, (inside / "notes", inside / "other"), (inside / "file", inside / "link"))
        if is_swapped:
            swapping.swap()
        came = await loaded(agent, swapping, f"{inside}/{name}")
    assert set(came) <= {"loaded", "cannot_read"}
    assert sum(came.values()) > 6, came


@pytest.mark.parametrize("name", ["notes/a.txt", "notes", "notes/*", "**/a.txt"])
@pytest.mark.parametrize("is_swapped", [False, True])
async def test_a_local_client_gets_nothing_of_other_sessions(
    connect: Any, ground: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, name: str, is_swapped: bool
) -> None:
    """K-21: our own folders stay closed, also to what goes through a link that code in a session swaps."""
    inside, _ = ground
    state = Path(discovery.state_folder()) / "notes"
    state.mkdir()
    (state / "a.txt").write_text(SECRET)
    (inside / "other").unlink()
    (inside / "other").symlink_to(state)
    async with connect(cwd=str(inside)) as agent:
        swapping = Swapping(monkeypatch, (inside / "notes", inside / "other"))
        if is_swapped:
            swapping.swap()
        came = await loaded(agent, swapping, name)
    assert set(came) <= {"loaded", "cannot_read"}
    assert sum(came.values()) > 6, came


async def test_a_text_is_not_loaded_again_through_a_link_that_has_taken_its_place(
    connect: Any, ground: tuple[Path, Path]
) -> None:
    """K-21: a refresh is judged like a load."""
    inside, _ = ground
    state = Path(discovery.state_folder()) / "notes.txt"
    state.write_text(SECRET)
    async with connect(cwd=str(inside)) as agent:
        await agent("load_context", name="y", path="file")
        os.unlink(inside / "file")
        (inside / "file").symlink_to(state)
        assert (await agent("refresh", name="y"))["error"] == "cannot_read"


async def test_whether_something_is_there_is_not_told_of_what_may_not_be_read(
    remote: Any, ground: tuple[Path, Path]
) -> None:
    """K-21: to a remote client a file outside and none outside are one thing, by a path as by a link."""
    inside, outside = ground
    async with remote as agent:
        for there, none in (
            (outside / "a.txt", outside / "b.txt"),
            (inside / "other" / "a.txt", inside / "other" / "b.txt"),
            (outside / "a.txt", outside / "a.txt" / "b.txt"),
        ):
            said = [await agent("load_context", name="x", path=str(path)) for path in (there, none)]
            told = [answer["message"].replace(str(path), "") for answer, path in zip(said, (there, none), strict=True)]
            assert told[0] == told[1]


async def test_a_pattern_that_never_ends_is_refused_while_others_are_answered(
    quiet: Service, connect: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K-10: folders are looked through in a thread, within a bound; another client's call is answered meanwhile."""
    reached, go_on = threading.Event(), threading.Event()
    whole = folder.Look.into

    def held(look: Any, place: Any) -> Any:
        reached.set()
        assert go_on.wait(60)
        return whole(look, place)

    monkeypatch.setattr(folder.Look, "into", held)
    monkeypatch.setattr(folder, "MOST_ENTRIES", 50)
    for number in range(60):
        (tmp_path / f"{number}.txt").touch()
    async with connect("a", cwd=str(tmp_path)) as one, connect("b", cwd=str(tmp_path)) as other:
        answers: list[Any] = []

        async def load() -> None:
            answers.append(await one("load_context", name="x", path="**/*.log"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(load)
            assert await anyio.to_thread.run_sync(reached.wait, 60)
            assert "variables" in await other("list_vars")
            assert answers == []
            go_on.set()
        assert (answers[0]["error"], "more than 50 files" in answers[0]["message"]) == ("cannot_read", True)


async def test_links_from_one_allowed_folder_into_another_are_followed(remote: Any, ground: tuple[Path, Path]) -> None:
    """K-21: relative and absolute links, and .. , lead where they lead; only that is judged."""
    inside, _ = ground
    (inside / "notes" / "up").symlink_to("../file")
    (inside / "notes" / "away").symlink_to(inside / "notes" / "up")
    (inside / "loop").symlink_to("loop")
    os.mkfifo(inside / "pipe")
    async with remote as agent:
        for path in ("notes/up", "notes/away", "notes/../file", "other/../notes/a.txt"):
            answer = await agent("load_context", name="x", path=f"{inside}/{path}")
            expected = "cannot_read" if path.startswith("other") else None  # above where the link leads
            assert answer.get("error") == expected, path
        for path in ("loop", "pipe", "file/x"):
            assert (await agent("load_context", name="x", path=f"{inside}/{path}"))["error"] == "cannot_read"


async def test_under_strict_an_agent_loads_the_workspace_and_a_terminal_loads_what_its_user_can(
    connect: Any, ground: tuple[Path, Path]
) -> None:
    """K-21: what an agent was told to load by a hostile text stays closed to it, and is not told to be there."""
    inside, outside = ground
    env = {"RLM_KERNEL_POLICY": "strict"}
    hidden = [str(outside / "a.txt"), "../outside/a.txt", "link", "other/a.txt", "/etc/passwd"]
    async with connect(cwd=str(inside), **env) as agent, connect("else", cwd="/", **env) as elsewhere:
        assert (await agent("load_context", name="x", path="notes/a.txt"))["size"] == len("harmless")
        whole = await agent("load_context", name="notes", path="notes/*.txt")
        assert whole.get("size"), whole
        for path in hidden:
            answer = await agent("load_context", name="y", path=path)
            assert (answer["error"], "files.load: workspace" in answer["message"]) == ("cannot_read", True), path
        # The session has a workspace, and a client that is somewhere else gets no other one.
        answer = await elsewhere("load_context", name="y", path=str(outside / "a.txt"), session="s")
        assert (answer["error"], "files.load: workspace" in answer["message"]) == ("cannot_read", True)
    async with connect(cwd=str(inside), RLM_KERNEL_MADE_BY="terminal", **env) as terminal:
        for path in hidden:
            assert (await terminal("load_context", name="y", path=path))["size"]
