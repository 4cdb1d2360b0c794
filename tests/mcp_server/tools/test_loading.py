"""load_context, list_vars, var_info and unload, without a kernel."""

import asyncio
import gzip
import os
import sqlite3
import stat
import zipfile
from contextlib import closing
from pathlib import Path

import pytest
from session_processes import children_with
from waiting import until

from rlm_ipc import discovery

pytestmark = pytest.mark.anyio
SAMPLE = "line 1\nline 2\nline 3\nERROR: test error\nline 5"
MIB = 1024 * 1024


async def test_the_sample_of_five_lines_has_five_lines(connect) -> None:
    """K-1: load_context answers with name, line_count, size, type and expires_in."""
    async with connect() as agent:
        assert await agent("load_context", name="test", content=SAMPLE, content_type="test") == {
            "name": "test",
            "line_count": 5,
            "size": len(SAMPLE),
            "type": "test",
            "expires_in": "7.1 days if not accessed",
        }


async def test_the_same_name_overwrites_and_the_type_defaults_to_custom(connect) -> None:
    """K-1: loading again under a name replaces its text."""
    async with connect() as agent:
        await agent("load_context", name="test", content=SAMPLE)
        assert (await agent("load_context", name="test", content="new"))["type"] == "custom"
        assert (await agent("peek", name="test"))["content"] == "new"
        assert len((await agent("list_vars"))["variables"]) == 1


async def test_list_vars_shows_the_documented_fields(connect) -> None:
    """K-4: session, variables with name, line_count, size, type and created, and total_size."""
    async with connect("abc123") as agent:
        await agent("load_context", name="log_data", content=SAMPLE, content_type="log")
        listed = await agent("list_vars")
    assert listed["session"] == "abc123"
    assert listed["total_size"] == len(SAMPLE)
    (row,) = listed["variables"]
    assert set(row) == {"name", "line_count", "size", "type", "created"}
    assert row["created"].startswith("20")


async def test_reading_moves_last_accessed_and_not_created(connect, clock) -> None:
    """K-5: var_info adds metadata and last_accessed, both times in ISO form."""
    async with connect() as agent:
        await agent("load_context", name="log", content=SAMPLE, metadata={"path": "a.log"})
        clock.now += 60
        await agent("peek", name="log")
        info = await agent("var_info", name="log")
    assert info["metadata"] == {"path": "a.log"}
    assert info["created"] == "2027-01-15T08:00:00.000+00:00"
    assert info["last_accessed"] == "2027-01-15T08:01:00.000+00:00"


async def test_a_disk_that_is_full_for_long_keeps_nobody_from_reading(connect, clock) -> None:
    """K-17: the times of use are written now and then; where they cannot be, a call goes on without."""
    async with connect() as agent:
        await agent("load_context", name="log", content=SAMPLE)
        (database,) = discovery.state_dir().glob("*.sqlite3")
        refuses = "CREATE TRIGGER full BEFORE UPDATE ON sessions BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
        with closing(sqlite3.connect(database)) as beside:
            beside.execute(refuses)
        clock.now += 60
        assert (await agent("peek", name="log"))["content"] == SAMPLE


async def test_what_is_unloaded_cannot_be_read(connect) -> None:
    """K-6: unload answers with the name; peek then errs with what is available."""
    async with connect() as agent:
        await agent("load_context", name="a", content="1")
        await agent("load_context", name="b", content="2")
        assert await agent("unload", name="a") == {"unloaded": "a"}
        gone = await agent("peek", name="a")
        assert agent.is_error
        assert (gone["error"], gone["name"], gone["available"]) == ("variable_not_found", "a", ["b"])
        assert (await agent("unload", name="a"))["error"] == "variable_not_found"


async def test_names_are_case_sensitive(connect) -> None:
    """K-10: Log is not log."""
    async with connect() as agent:
        await agent("load_context", name="log", content="1")
        assert (await agent("peek", name="Log"))["error"] == "variable_not_found"


async def test_a_file_is_loaded_by_path_absolute_or_relative_to_the_client(connect, tmp_path: Path) -> None:
    """K-1: a path spares sending the text; it is noted in the metadata."""
    (tmp_path / "a.log").write_bytes(b"one\ntwo\n")
    async with connect(cwd=str(tmp_path)) as agent:
        for path in (str(tmp_path / "a.log"), "a.log"):
            loaded = await agent("load_context", name="log", path=path)
            assert (loaded["line_count"], loaded["size"]) == (2, 8)
        info = await agent("var_info", name="log")
        assert info["metadata"]["path"] == str(tmp_path / "a.log")


async def test_a_remote_client_loads_only_what_the_policy_lets_code_read(connect, tmp_path: Path) -> None:
    """K-21: a client that is not on this machine has no files of its own here."""
    (tmp_path / "a.log").write_text("x")
    async with connect(cwd="") as agent:
        refused = await agent("load_context", name="log", path=str(tmp_path / "a.log"))
    assert refused["error"] == "cannot_read"
    assert "send its text as content" in refused["hint"]


async def test_a_remote_client_is_told_only_real_folders(connect) -> None:
    """K-21: a session without a workspace has no folder that the hint could name."""
    async with connect(cwd="") as agent:
        refused = await agent("load_context", name="x", path="/etc/hostname")
    assert "(none)" in refused["hint"]
    assert "$" not in refused["hint"]


async def test_nobody_loads_what_tells_of_the_process_or_of_other_sessions(connect, tmp_path: Path) -> None:
    """K-21: the kernel's file systems and our own folders are refused to local clients too, by any way there."""
    folders = [discovery.state_dir(), discovery.runtime_dir(), discovery.config_dir()]
    for number, folder in enumerate(folders):
        folder.mkdir(exist_ok=True)
        (folder / "secret").write_text("token")
        (tmp_path / f"link{number}").symlink_to(folder / "secret")
    (tmp_path / "environment").symlink_to("/proc/self/environ")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    paths = ["/proc/self/environ", "/proc/self/root/etc/hostname", "/sys/kernel/notes", "/dev/null", "environment"]
    paths += ["link0", "link1", "link2", "loop", *(str(folder / "secret") for folder in folders)]
    async with connect(cwd=str(tmp_path)) as agent:
        for path in paths:
            answer = await agent("load_context", name="x", path=path)
            assert answer["error"] == "cannot_read", path
            assert answer["hint"]


@pytest.mark.skipif(os.getuid() == 0, reason="root reads every file")
async def test_an_unreadable_file_is_an_error_that_says_why(connect, tmp_path: Path) -> None:
    """K-10: a file without read permission."""
    path = tmp_path / "secret"
    path.write_text("x")
    path.chmod(0)
    async with connect(cwd=str(tmp_path)) as agent:
        assert (await agent("load_context", name="x", path="secret"))["error"] == "cannot_read"


async def test_a_path_is_told_whole_and_apart_from_what_to_do(connect, tmp_path: Path) -> None:
    """K-10: whatever stands in it, alone and among others."""
    odd = tmp_path / "a; b"
    odd.mkdir()
    async with connect(cwd=str(tmp_path)) as agent:
        for path in (str(odd / "none; gone"), [str(odd / "none; gone"), str(odd)]):
            answer = await agent("load_context", name="x", path=path)
            assert f"{odd}/none; gone: " in answer["message"]
            assert answer["hint"].startswith("give ")


async def test_what_is_no_readable_file_is_an_error_that_says_what_to_do(connect, tmp_path: Path) -> None:
    """K-10: missing files, directories, FIFOs and odd paths are refused at once."""
    os.mkfifo(tmp_path / "pipe")
    async with connect(cwd=str(tmp_path)) as agent:
        for path in (
            "missing.log",
            ".",
            "pipe",
            "/dev/zero",
            "a\0b",
            "",
            "x" * 5000,
            "y" * 300,
            "~nobody-of-that-name/x",
        ):
            answer = await agent("load_context", name="x", path=path)
            assert answer["error"] == "cannot_read", path
            assert answer["hint"]
        assert (await agent("list_vars"))["variables"] == []


async def test_invalid_utf8_and_nul_bytes_are_loaded_and_counted(connect, tmp_path: Path) -> None:
    """K-1: any bytes can be loaded; replaced ones are counted in the answer and in the metadata."""
    (tmp_path / "odd").write_bytes(b"a\xff\xfe\0b\nc")
    async with connect(cwd=str(tmp_path)) as agent:
        told = await agent("load_context", name="odd", path="odd")
        assert told["notice"].startswith("the source is not entirely UTF-8: 2 sequences of its bytes became U+FFFD; ")
        assert "encoding=" in told["notice"]
        assert told["notice"].endswith("binary file is not a text")
        assert (await agent("var_info", name="odd"))["metadata"]["replacements"] == 2
        assert (await agent("peek", name="odd"))["content"] == "a\ufffd\ufffd\0b\nc"


async def test_a_lone_surrogate_does_no_harm_anywhere(unchecked) -> None:
    """K-10: text that UTF-8 cannot carry is replaced on its way in and out."""
    await unchecked("load_context", name="x", content="a\ud800b", metadata={"k\udfff": "v\ud800"})
    assert (await unchecked("peek", name="x"))["content"] == "a\ufffdb"
    info = await unchecked("var_info", name="x")
    assert info["metadata"] == {"replacements": 1, "k\ufffd": "v\ufffd"}
    assert (await unchecked("scan", name="x", pattern="\ud800"))["pattern"] == "\ufffd"
    assert (await unchecked("peek", name="\ud800"))["name"] == "\ufffd"
    assert (await unchecked("x\ud800"))["error"] == "unknown_tool"
    assert (await unchecked("peek", **{"\ud800": 1}))["error"] == "invalid_arguments"
    assert (await unchecked("load_context", name="y", path="\ud800"))["error"] == "cannot_read"
    assert (await unchecked("list_vars", session="\ud800"))["error"] == "invalid_session"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("log-data", "log_data"),
        ("1st", "data_1st"),
        ("", "data"),
        ("a b", "a_b"),
        ("a\0b", "a_b"),
        ("lambda", "lambda_data"),
        ("list", "list_data"),
        ("llm_query", "llm_query_data"),
        ("_hidden", "hidden"),
        ("__class__", "class_data"),
        ("_list", "list_data"),
        ("ctx_abc123_log_001", "data"),
        ("x" * 101, "x" * 20),
        ("日 本", "data"),
    ],
)
async def test_a_name_that_cannot_be_a_variable_is_refused_with_a_better_one(connect, name, hint) -> None:
    """K-1: names are identifiers that hide no builtin, keyword or helper."""
    async with connect() as agent:
        refused = await agent("load_context", name=name, content="x")
        assert refused["error"] == "invalid_name"
        assert repr(hint) in refused["hint"]
        await agent("load_context", name=hint, content="x")
        assert not agent.is_error


async def test_a_name_is_known_as_python_knows_it(connect) -> None:
    """K-1: identifiers are NFKC-normalised, so the kernel's global has that name too."""
    async with connect() as agent:
        assert (await agent("load_context", name="ﬁle_1", content="x"))["name"] == "file_1"


async def test_more_than_the_quota_is_refused_before_it_is_read(connect, tmp_path: Path) -> None:
    """K-13: 101 MB are refused with the seed's words; nothing is loaded."""
    with (tmp_path / "big").open("wb") as file:
        file.truncate(101 * MIB)
    async with connect("abc", cwd=str(tmp_path)) as agent:
        await agent("load_context", name="small", content="x" * 10)
        refused = await agent("load_context", name="big", path="big")
        assert (refused["error"], refused["used_bytes"]) == ("quota_exceeded", 10)
        await agent("unload", name="small")
        assert refused["message"].startswith("Session abc would exceed 100MB limit")
        assert (await agent("list_vars"))["variables"] == []


async def test_the_quota_counts_bytes_of_all_contexts_together(connect, tmp_path: Path) -> None:
    """K-13: the hundred-and-first megabyte is refused, whatever it is split into; unloading makes room."""
    for name, size in (("most", 99), ("rest", 2)):
        (tmp_path / name).write_bytes(("é" * (size * MIB // 2)).encode())
    async with connect("abc", cwd=str(tmp_path)) as agent:
        assert (await agent("load_context", name="most", path="most"))["size"] == 99 * MIB
        assert (await agent("load_context", name="rest", path="rest"))["error"] == "quota_exceeded"
        await agent("unload", name="most")
        assert (await agent("load_context", name="rest", path="rest"))["size"] == 2 * MIB


async def test_two_sessions_never_see_each_others_names(connect) -> None:
    """K-11: the same name, two contents."""
    async with connect("one") as one, connect("two") as two:
        await one("load_context", name="log", content="1")
        await two("load_context", name="log", content="2")
        assert (await one("peek", name="log"))["content"] == "1"
        assert (await two("peek", name="log"))["content"] == "2"


async def test_a_context_is_copied_by_name_without_a_kernel(connect) -> None:
    """K-1: the variable of another context, or a handle, is a source too."""
    async with connect() as agent:
        await agent("load_context", name="a", content=SAMPLE)
        handle = (await agent("register_handle", name="a"))["handle"]
        assert (await agent("load_context", name="b", variable="a"))["line_count"] == 5
        assert (await agent("load_context", name="c", variable=handle))["line_count"] == 5
        assert (await agent("load_context", name="d", variable="nothing"))["error"] == "variable_not_found"


async def test_stored_texts_are_private_to_the_user(connect, isolation) -> None:
    """What agents load may be secret: nobody else can read the store."""
    async with connect() as agent:
        await agent("load_context", name="a", content=SAMPLE)
    modes = {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in isolation.state.rglob("*")}
    assert modes == {0}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small repository, with a key, a binary file and something that is ignored."""
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "src" / "main.py").write_text("import os\nprint('mark one')\n")
    (root / "src" / "util.py").write_text("# MARK two\n# mark three\n")
    (root / "data.bin").write_bytes(bytes(100))
    (root / "server.pem").write_text("secret")
    (root / "out.log").write_text("mark ignored\n")
    (root / ".gitignore").write_text("*.log\n")
    return root


async def test_a_directory_is_one_context_with_a_table_and_counts_for_each_file(connect, project: Path) -> None:
    """K-1, ours: what was left out is counted; unloading takes the table along."""
    async with connect(cwd=str(project)) as agent:
        loaded = await agent("load_context", name="code", path=".")
        assert set(loaded) == {"name", "line_count", "size", "type", "expires_in", "files"}
        files = (await agent("var_info", name="code"))["metadata"]["files"]
        assert loaded["files"] == files
        assert files == {"count": 3, "skipped": {"binary": 1, "ignored": 1, "secret": 1}, "table": "code_files"}
        found = await agent("scan", name="code", pattern="mark", flags="per_file")
        assert found["files"] == [{"path": "src/main.py", "matches": 1}, {"path": "src/util.py", "matches": 2}]
        assert (found["matches"], found["total"], found["files_matched"]) == (3, 3, 2)
        assert "src/util.py" in (await agent("peek", name="code_files"))["content"]
        await agent("load_context", name="code", path="src")
        assert [row["name"] for row in (await agent("list_vars"))["variables"]] == ["code", "code_files"]
        await agent("load_context", name="code_files", content="mine")
        assert "not a table of files" in (await agent("scan", name="code", pattern="x", flags="per_file"))["message"]
        await agent("unload", name="code")
        assert [row["name"] for row in (await agent("list_vars"))["variables"]] == ["code_files"]


@pytest.mark.parametrize(("matching", "most"), [(516, 2), (516, 200), (3, 200)])
async def test_counts_of_many_files_leave_room_for_the_matches(
    connect, tmp_path: Path, matching: int, most: int
) -> None:
    """K-3: neither list is empty while there is something to tell; what there is no room for is kept."""
    folder = tmp_path / "a_project_of_many_files_with_a_long_name"
    folder.mkdir()
    for number in range(516):
        (folder / f"module_{number:03}.py").write_text(f"# mark {'x' * 70}\n" * (number < matching))
    async with connect(cwd=str(tmp_path)) as agent:
        await agent("load_context", name="code", path=folder.name)
        found = await agent("scan", name="code", pattern="mark", flags=["per_file"], max_matches=most)
        assert found["files_matched"] == found["total"] == matching
        assert found["matches"] == min(most, matching)
        assert len(found["results"]) >= 2
        assert len(found["files"]) > 2
        assert len(agent.text) <= 8000
        if matching > 3:
            kept = (await agent("scan", name=found["full_output"], pattern="module_", flags=["count"]))["total"]
            assert kept == matching


async def test_patterns_and_several_paths_are_loaded_together(connect, project: Path) -> None:
    """Ours: relative to the client; a pattern without a match is an error."""
    async with connect(cwd=str(project)) as agent:
        await agent("load_context", name="code", path="src/*.py")
        assert (await agent("peek", name="code", limit=1))["content"] == "==> main.py <=="
        await agent("load_context", name="code", path=["src/util.py", "out.log"])
        assert (await agent("peek", name="code", limit=1))["content"] == "==> src/util.py <=="
        for wrong in ({"path": "*.none"}, {"path": []}, {"path": ["src", "missing"]}, {"path": ["x"], "content": "x"}):
            assert "error" in await agent("load_context", name="x", **wrong), wrong


async def test_patterns_and_directories_keep_to_the_policy(connect, project: Path, tmp_path: Path) -> None:
    """K-22: for a client from elsewhere, and for the folders that nobody loads from, by whatever way they are named."""
    state = Path(discovery.state_folder())
    (state / "notes").mkdir(exist_ok=True)
    (state / "notes" / "a.txt").write_text("secret")
    (project / "inside.txt").symlink_to(state / "notes" / "a.txt")
    async with connect() as remote:
        for path in (str(project), f"{project}/src/*.py", f"{tmp_path}/**", "/**/passwd"):
            assert (await remote("load_context", name="x", path=path))["error"] == "cannot_read", path
    async with connect(cwd=str(project)) as agent:
        for path in (str(state), f"{state}/*/*", f"{state}/notes", "inside.*", "/proc/*/environ"):
            assert (await agent("load_context", name="x", path=path))["error"] == "cannot_read", path
        (state.parent / "note.txt").write_text("harmless")
        await agent("load_context", name="every", path=str(state.parent))
        text = (await agent("peek", name="every", max_chars=1_000_000))["content"]
    assert "harmless" in text
    assert "secret" not in text


async def test_refresh_loads_again_and_tells_what_changed(connect, project: Path) -> None:
    """Ours: an unchanged source is told as such; name, type and metadata stay."""
    log = project / "app.txt"
    log.write_text("one\ntwo\n")
    async with connect(cwd=str(project)) as agent:
        await agent("load_context", name="log", path="app.txt", content_type="log", metadata={"why": "test"})
        assert await agent("refresh", name="log") == {"name": "log", "changed": False, "line_count": 2, "size": 8}
        log.write_text("one\ntwo\nthree\n")
        changed = await agent("refresh", name="log")
        assert changed.pop("diff") == "@@ -2,0 +3,1 @@\n+three"
        assert changed == {
            "name": "log",
            "changed": True,
            "line_count": 3,
            "size": 14,
            "lines_before": 2,
            "added": 1,
            "removed": 0,
            "first_changed_line": 2,
            "appended": True,
        }
        info = await agent("var_info", name="log")
        assert (info["type"], info["metadata"]) == ("log", {"path": str(log), "why": "test"})
        await agent("load_context", name="code", path="src/*.py")
        (project / "src" / "new.py").write_text("new\n")
        assert (await agent("refresh", name="code"))["added"] == 2
        log.unlink()
        lost = await agent("refresh", name="log")
        assert (lost["error"], lost["hint"][:26]) == ("cannot_read", "log is as it was loaded; t")
        assert (await agent("peek", name="log"))["total_lines"] == 3
        await agent("load_context", name="sent", content="x")
        assert (await agent("refresh", name="sent"))["error"] == "cannot_read"
        assert (await agent("refresh", name="none"))["error"] == "variable_not_found"


async def test_a_refresh_that_fails_gives_the_advice_of_the_load(connect, tmp_path: Path) -> None:
    """Only for a file that is gone is there another: refresh takes no path."""
    log = tmp_path / "app.log.gz"
    packed = gzip.compress(b"one\ntwo\n")
    log.write_bytes(packed)
    async with connect("s", cwd=str(tmp_path)) as agent:
        await agent("load_context", name="log", path=str(log))
        await agent("load_context", name="logs", path="*.gz")
        log.write_bytes(packed[:-9])
        torn = await agent("refresh", name="log")
        assert torn["error"] == "cannot_read"
        assert torn["hint"] == "log is as it was loaded; give the path of a complete file"
        log.unlink()
        for name in ("log", "logs"):
            gone = await agent("refresh", name=name)
            assert gone["hint"].startswith(f"{name} is as it was loaded; to load it from another place, call")


async def test_what_was_noted_of_an_earlier_load_goes_with_a_refresh(connect, tmp_path: Path) -> None:
    """K-1, ours: whoever looks up how a text was loaded is not told of the file that lay there before."""
    log = tmp_path / "app.log"
    log.write_bytes(gzip.compress(b"one\ntwo\n"))
    async with connect("s", cwd=str(tmp_path)) as agent:
        await agent("load_context", name="log", path=str(log), metadata={"owner": "ops"})
        noted = (await agent("var_info", name="log"))["metadata"]
        assert noted == {"path": str(log), "compression": "gzip", "owner": "ops"}
        log.write_text("one\ntwo\nthree\n")
        assert (await agent("refresh", name="log"))["changed"] is True
        assert (await agent("var_info", name="log"))["metadata"] == {"path": str(log), "owner": "ops"}


async def test_compressed_files_are_unpacked_within_the_quota(connect, tmp_path: Path) -> None:
    """K-13: the quota counts what comes out."""
    (tmp_path / "a.log").write_bytes(gzip.compress(b"one\ntwo\n"))
    (tmp_path / "bomb").write_bytes(gzip.compress(bytes(101 * MIB), 1))
    async with connect(cwd=str(tmp_path)) as agent:
        assert (await agent("load_context", name="log", path="a.log"))["line_count"] == 2
        assert (await agent("var_info", name="log"))["metadata"]["compression"] == "gzip"
        assert (await agent("load_context", name="bomb", path="bomb"))["error"] == "quota_exceeded"


async def test_var_info_shows_the_shape_of_data(connect) -> None:
    """K-5, ours: columns and rows of what is data; nothing is added for a log."""
    async with connect() as agent:
        await agent("load_context", name="rows", content='{"id": 1, "at": 2}\n{"id": 2}\n')
        await agent("load_context", name="table", content="a,b\n1,2\n", content_type="csv")
        await agent("load_context", name="log", content=SAMPLE)
        assert (await agent("var_info", name="rows"))["shape"] == {
            "format": "jsonl",
            "rows": 2,
            "columns": ["id", "at"],
        }
        assert (await agent("var_info", name="table"))["shape"]["columns"] == ["a", "b"]
        assert "shape" not in await agent("var_info", name="log")


async def test_one_text_under_two_names_has_the_shape_of_each(connect) -> None:
    """K-5, ours: the type that a text was loaded with says whether commas separate columns."""
    async with connect() as agent:
        await agent("load_context", name="table", content="a,b\n1,2\n", content_type="csv")
        await agent("load_context", name="prose", content="a,b\n1,2\n", content_type="log")
        for _ in range(2):
            assert (await agent("var_info", name="table"))["shape"]["columns"] == ["a", "b"]
            assert "shape" not in await agent("var_info", name="prose")


async def test_an_archive_of_many_files_keeps_nobody_waiting(connect, tmp_path: Path) -> None:
    """K-13: a process of its own unpacks it; another client's call is answered while that process stands still."""
    with zipfile.ZipFile(tmp_path / "many.zip", "w") as archive:
        for number in range(50_000):
            archive.writestr(str(number), "x")
    async with connect("a", cwd=str(tmp_path)) as one, connect("b") as other:
        load = asyncio.create_task(one("load_context", name="many", path="many.zip"))
        found = await until(lambda: children_with("rlm_contexts.helpers") or load.done())
        assert not load.done(), load.result()
        found[0].suspend()
        assert "variables" in await other("list_vars")
        assert not load.done()
        found[0].resume()
        assert (await load)["files"]["count"] == 50_000
