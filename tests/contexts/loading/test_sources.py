"""Sources other than a plain file: compressed, several, directories; and what is told of their content."""

import gzip
import json
import os
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_files import PACKERS

from rlm_contexts import errors
from rlm_contexts.loading.folder import files_below
from rlm_contexts.loading.places import PathReach
from rlm_contexts.loading.sources import LoadedSource, put_file, put_files
from rlm_contexts.store.store import ContextStore
from rlm_contexts.text.changes import changes
from rlm_contexts.text.lines import Lines
from rlm_contexts.text.shape import shape_of
from rlm_contexts.text.text import Text
from rlm_ipc.folder_removal import remove_folder

TEXT = "line \xe9\n" * 300_000


def content(store: ContextStore, loaded: LoadedSource) -> str:
    return store.open(loaded.text).content


def table(loaded: LoadedSource) -> list[dict[str, object]]:
    return [json.loads(line) for line in loaded.table.splitlines()]


def below(folder: Path, skipped: Counter[str] | None = None, refused: Sequence[str] = ()) -> list[Path]:
    """The files of a folder, as a load finds them."""
    reach = PathReach(refused)
    with reach.opened(folder) as place:
        return [found.path for found in files_below(place, Counter() if skipped is None else skipped, reach)]


@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)
def test_a_compressed_file_is_unpacked_also_when_it_has_several_parts(
    store: ContextStore, tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    """K-1, ours: recognised by its first bytes, whatever it is called."""
    path = tmp_path / "log"
    path.write_bytes(pack(TEXT.encode()) + pack(b"more\n"))
    loaded = put_file(store, path)
    assert content(store, loaded) == TEXT + "more\n"
    assert loaded.compression in {"gzip", "bzip2", "xz", "zstd"}


@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)
def test_a_damaged_or_endless_compressed_file_is_refused(
    store: ContextStore, tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    """K-13: a small file that unpacks to a large one stops at the limit; half a file is no file."""
    path = tmp_path / "log"
    path.write_bytes(pack(bytes(50_000_000)))
    with pytest.raises(errors.TextTooLarge):
        put_file(store, path, limit=1_000_000)
    path.write_bytes(pack(os.urandom(5000))[:-700])
    with pytest.raises(errors.SourceError, match="damaged"):
        put_file(store, path)
    assert list((store.root / "drafts").iterdir()) == []


def test_without_a_library_for_zstd_the_error_says_what_to_install(
    store: ContextStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K-10: Python has it from 3.14 on."""
    path = tmp_path / "log.zst"
    path.write_bytes(PACKERS["zst"](b"hello\n"))
    for module in ("compression.zstd", "backports.zstd"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(errors.MissingExtra, match=r"pip install .*backports-zstd"):
        put_file(store, path)


def test_a_zip_archive_is_the_text_files_in_it(store: ContextStore, tmp_path: Path) -> None:
    """Binary members and keys are left out and counted; a damaged archive is refused."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/b.txt", "one\ntwo")
        archive.writestr("logo.png", b"\x89PNG\0\0")
        archive.writestr("id_rsa", "key")
        archive.writestr("c.txt", "")
    loaded = put_file(store, path)
    assert content(store, loaded) == "==> a/b.txt <==\none\ntwo\n==> c.txt <==\n"
    assert (loaded.files, loaded.skipped) == (2, {"binary": 1, "secret": 1})
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(errors.SourceError, match="damaged"):
        put_file(store, path)


def test_a_zip_archive_without_files_is_no_text(store: ContextStore, tmp_path: Path) -> None:
    """It begins in another way than one with files: its 22 bytes were the text."""
    path = tmp_path / "empty.zip"
    zipfile.ZipFile(path, "w").close()
    with pytest.raises(errors.SourceError, match="no file is left to load"):
        put_file(store, path)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with everything that is to be left out."""
    root = tmp_path / "project"
    for name, text in {
        "README.md": "# Title\nno newline",
        ".gitignore": "*.log\nbuild/\n!keep.log\n",
        "app.log": "ignored",
        "keep.log": "kept\n",
        "build/out.txt": "ignored",
        "src/main.py": "print(1)\n\n",
        "src/.gitignore": "local.*\n",
        "src/local.py": "ignored",
        "src/deep/empty.py": "",
        ".env": "TOKEN=secret-token",
        ".env.example": "TOKEN=\n",
        "src/notes.txt": "x\n-----BEGIN RSA PRIVATE KEY-----\nsecret-key\n",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "logo.bin").write_bytes(b"\0\1\2")
    with zipfile.ZipFile(root / "packed.zip", "w") as archive:
        archive.writestr("a.txt", "packed")
    (tmp_path / "outside").write_text("secret-outside")
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "linked").symlink_to(tmp_path)
    os.mkfifo(root / "pipe")
    subprocess.run(["git", "init", "-q", root], check=True)
    return root


def test_a_directory_is_one_text_with_a_table_of_its_files(store: ContextStore, project: Path) -> None:
    """Ours: what git ignores, binary files, secrets and links are left out and counted."""
    loaded = put_files(store, [project])
    text = content(store, loaded)
    rows = table(loaded)
    assert [row["path"] for row in rows] == [
        *(".env.example", ".gitignore", "README.md", "keep.log"),
        *("src/.gitignore", "src/deep/empty.py", "src/main.py"),
    ]
    assert loaded.files == len(rows)
    assert loaded.skipped == {"binary": 1, "compressed": 1, "ignored": 3, "link": 2, "secret": 2, "special": 1}
    assert "secret-" not in text
    lines = text.splitlines()
    for row in rows:
        start, count = int(str(row["line"])), int(str(row["lines"]))
        assert lines[start - 1] == f"==> {row['path']} <=="
        assert lines[start : start + count] == (project / str(row["path"])).read_text().splitlines()


def test_the_ignore_rules_are_those_of_git(store: ContextStore, project: Path) -> None:
    """A part of a repository obeys the rules above it; git itself lists the same files."""
    listed = subprocess.run(
        ["git", "-C", project, "ls-files", "--others", "--exclude-standard"], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    found = [str(path.relative_to(project)) for path in below(project)]
    assert sorted(found) == sorted(name for name in listed if not (project / name).is_symlink())
    (project / "src" / "app.log").write_text("ignored from above")
    names = [path.name for path in below(project / "src")]
    assert names == [".gitignore", "empty.py", "main.py", "notes.txt"]


def test_a_directory_that_is_ignored_is_loaded_when_it_is_named(project: Path) -> None:
    """Logs are what is excluded most often, and what is loaded most often; rules below it still hold."""
    deep = project / "build" / "deep"
    deep.mkdir()
    (deep / "app.log").write_text("excluded twice from above")
    (deep / "scratch").write_text("excluded here")
    (deep / ".gitignore").write_text("scratch\n")
    for folder, files in ((project / "build", ["app.log", "out.txt"]), (deep, ["app.log"])):
        names = {path.name for path in below(folder)}
        assert names == {".gitignore", *files}


def test_private_directories_are_not_looked_into_and_nothing_left_is_an_error(
    store: ContextStore, project: Path
) -> None:
    """The message says what was left out."""
    skipped: Counter[str] = Counter()
    assert all("src" not in path.parts for path in below(project, skipped, [str(project / "src")]))
    assert skipped["private"] == 1
    with pytest.raises(errors.SourceError, match="1 binary"):
        put_files(store, [project / "logo.bin"])


def test_a_gitignore_beside_a_name_that_is_no_text_is_followed(tmp_path: Path) -> None:
    """K-1, ours: names on disk are bytes, and RE2 takes only text."""
    for name in (b"bad\xff.py", b"bad\xff.o", b"good.o", b"good.py"):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_text("x")
    (tmp_path / ".gitignore").write_text("*.o\n")
    assert [os.fsencode(path.name) for path in below(tmp_path)] == [b".gitignore", b"bad\xff.py", b"good.py"]


def test_more_rules_than_re2_takes_as_one_set_count_all(tmp_path: Path) -> None:
    """K-1, ours: the last one that matches wins, also across sets, and one that is invalid costs no other."""
    rules = [f"**/a{number}/**/*.b{number}" for number in range(1_500)]
    (tmp_path / ".gitignore").write_text("\n".join([*rules, "[z-a]", "*.log", "!keep.log"]) + "\n")
    for name in ("a7/x.b7", "a1499/x.b1499", "a7/x.b8", "keep.log", "drop.log"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    assert [str(path.relative_to(tmp_path)) for path in below(tmp_path)] == [".gitignore", "a7/x.b8", "keep.log"]


def test_a_hostile_directory_costs_its_own_places_only(store: ContextStore, tmp_path: Path) -> None:
    """Rules that are none, or that would take for ever to match, a FIFO of rules, folders without end."""
    deep = tmp_path / "deep"
    (tmp_path / ".gitignore").write_text("[z-a]\n*.log\n" + "*a" * 40 + "b\n")
    (tmp_path / "a.log").write_text("ignored")
    (tmp_path / ("a" * 200)).write_text("not ignored")
    (tmp_path / "other").mkdir()
    os.mkfifo(tmp_path / "other" / ".gitignore")
    (tmp_path / "other" / "a.log").write_text("ignored too")
    fd = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("deep", dir_fd=fd)
        inner = os.open("deep", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)
    skipped: Counter[str] = Counter()
    assert [path.name for path in below(tmp_path, skipped)] == [".gitignore", "a" * 200]
    assert skipped == {"ignored": 2, "special": 1, "too deep": 1}
    remove_folder(deep)


def test_a_damaged_file_among_several_is_named(store: ContextStore, tmp_path: Path) -> None:
    """A pattern of a hundred rotated logs fails because of one, which may be half written."""
    whole = gzip.compress(b"old\n" * 100)
    (tmp_path / "a.log.gz").write_bytes(whole)
    (tmp_path / "b.log.gz").write_bytes(whole[:-10])
    with pytest.raises(errors.SourceError, match=r"b\.log\.gz: the gzip data is damaged \(it ends early\)"):
        put_files(store, [tmp_path / "a.log.gz", tmp_path / "b.log.gz"])


def test_several_files_are_shown_relative_to_what_they_share_and_unpacked(store: ContextStore, tmp_path: Path) -> None:
    """Rotated logs, say; a file named twice by different patterns is the caller's business."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "app.log").write_text("new\n")
    (tmp_path / "a" / "app.log.gz").write_bytes(gzip.compress(b"old\n"))
    loaded = put_files(store, [tmp_path / "a" / "app.log.gz", tmp_path / "a" / "app.log"])
    assert content(store, loaded) == "==> app.log.gz <==\nold\n==> app.log <==\nnew\n"


LINES = st.lists(st.sampled_from(["a", "b", "c", "", "\xe9"]), max_size=12)


@given(LINES, LINES, st.booleans(), st.booleans())
def test_changes_say_what_was_added_and_removed(before: list[str], after: list[str], one: bool, other: bool) -> None:
    """Applied to the old lines the counts give the new ones; the first line that differs is the first."""
    old = Text.from_bytes(("\n".join(before) + "\n" * (one and bool(before))).encode())
    new = Text.from_bytes(("\n".join(after) + "\n" * (other and bool(after))).encode())
    left, right = list(Lines(old)), list(Lines(new))
    found = changes(old, new)
    assert len(left) - found.removed + found.added == len(right)
    assert found.removed <= len(left)
    assert left[: found.first_line] == right[: found.first_line]
    if left == right:
        assert (found.added, found.removed) == (0, 0)
    if found.appended:
        assert right[: len(left)] == left
        assert found.removed == 0


def test_changes_of_large_texts_are_counted_without_being_shown() -> None:
    """A million lines are compared as sets of lines; what was appended is told as such."""
    rows = [f"row {number}" for number in range(200_000)]
    old = Text.from_bytes("\n".join(rows).encode() + b"\n")
    grown = changes(old, Text.from_bytes(("\n".join(rows) + "\nnew\n").encode()))
    assert (grown.added, grown.removed, grown.appended, grown.first_line) == (1, 0, True, 200_000)
    assert grown.diff[-1] == "+new"
    other = changes(old, Text.from_bytes("\n".join(rows[::-1][:-10]).encode()))
    assert (other.added, other.removed, other.diff) == (0, 10, ())


@pytest.mark.parametrize(
    ("text", "hint", "shape"),
    [
        ('{"a": 1, "b": [2]}', "custom", {"format": "json", "keys": ["a", "b"]}),
        ('[{"a": 1},\n {"b": 2}]', "", {"format": "json", "items": 2, "columns": ["a", "b"]}),
        ('{"a": 1}\n{"a": 2, "c": 3}\n', "log", {"format": "jsonl", "rows": 2, "columns": ["a", "c"]}),
        ("id;name\n1;x\n2;y\n", "x.csv", {"format": "csv", "rows": 2, "columns": ["id", "name"]}),
        ("# source\n\n# year\nid,name\n1,x\n", "a.csv", {"format": "csv", "rows": 1, "columns": ["id", "name"]}),
        ("\ufeffid,name\n1,x\n", "log.csv.gz", {"format": "csv", "rows": 1, "columns": ["id", "name"]}),
        ('id\tname\n1\t"a\nb"\n', "tsv", {"format": "tsv", "rows": "<=2", "columns": ["id", "name"]}),
        ("[2026-01-01] started\n[2026-01-01] ended\n", "log", None),
        ("{\n", "json", None),
        ("a, b\nc, d\n", "log", None),
        ("==> a.csv <==\nid,name\n1,x\n==> b.csv <==\nid\n", "data/*.csv", None),
        ("", "csv", None),
    ],
)
def test_data_is_recognised(text: str, hint: str, shape: dict[str, object] | None) -> None:
    """K-5, ours: shape and columns; a log with brackets or commas is none."""
    found = shape_of(Text.from_bytes(text.encode()), hint)
    assert (found.to_dict() if found else None) == shape


def test_a_long_file_of_json_lines_is_described_by_its_first_lines() -> None:
    """Neither is all of it parsed, nor does a line that is cut spoil it."""
    text = "".join(json.dumps({"n": n, "text": "x" * 5000}) + "\n" for n in range(4000))
    found = shape_of(Text.from_bytes(text.encode()))
    assert found is not None
    assert found.to_dict() == {"format": "jsonl", "rows": 4000, "columns": ["n", "text"]}


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        (b"[" + b'{"a": [1, "]"]},\n' * 200_000 + b"{}]", {"format": "json", "items": ">=50", "columns": ["a"]}),
        (
            b'{"k": 1, "v": [' + b"1," * (1 << 20) + b"1]}",
            {"format": "json", "keys": ["k", "v"], "note": "large: its first keys"},
        ),
        (b"[" * (2 << 20), None),
        (b"[" + b"[]," * (1 << 20) + b"1]", {"format": "json", "items": ">=21845", "columns": []}),
        (b"{" * (2 << 20), None),
        (b'{"' + b"k" * (2 << 20), None),
        (b"[x" + b"1," * (1 << 20), None),
    ],
    ids=["rows", "object", "deep", "empties", "braces", "key", "no json"],
)
def test_a_large_or_hostile_document_is_described_by_its_beginning(
    text: bytes, shape: dict[str, object] | None
) -> None:
    """Parsing all of it would take twenty times its size in memory."""
    found = shape_of(Text.from_bytes(text))
    assert (found.to_dict() if found else None) == shape
