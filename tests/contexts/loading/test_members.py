"""Documents and tables among other files: taken in where they stand, or left out for a reason that is counted."""

import bz2
import gzip
import json
import lzma
import tarfile
import zipfile
from pathlib import Path

import pandas as pd
import pytest
from sample_files import SALES, write_pdf, write_word
from session_processes import children_with

from rlm_contexts import errors
from rlm_contexts.loading import members, sources
from rlm_contexts.loading.sources import LoadedSource, put_file, put_files
from rlm_contexts.progress import Meter, watched
from rlm_contexts.store.store import ContextStore
from rlm_contexts.text.lines import Lines


def load(store: ContextStore, *paths: Path) -> tuple[dict[str, str], LoadedSource]:
    """The text of each file, by its path in the table."""
    loaded = put_files(store, paths)
    lines = list(Lines(store.open(loaded.text)))
    rows = map(json.loads, loaded.table.splitlines())
    return {row["path"]: "\n".join(lines[row["line"] : row["line"] + row["lines"]]) for row in rows}, loaded


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with one file of each kind."""
    root = tmp_path / "project"
    root.mkdir()
    write_pdf(root / "report.pdf", "First page", "", "Third page")
    write_word(root / "paper.docx")
    pd.DataFrame({"id": range(50), "name": [f"n{number}" for number in range(50)]}).to_parquet(root / "t.parquet")
    (root / "sales.csv").write_text(SALES)
    (root / "events.jsonl").write_text('{"shop": "north"}\n{"shop": "south"}\n')
    return root


def test_documents_and_tables_of_a_directory_are_text_like_its_other_files(store: ContextStore, folder: Path) -> None:
    """K-1, ours: page by page, section by section; of a table its columns, its first rows, and how to have the rest."""
    found, loaded = load(store, folder)
    assert (loaded.files, loaded.skipped) == (5, {})
    assert found["report.pdf"] == "--- page 1 ---\nFirst page\n--- page 2 ---\n--- page 3 ---\nThird page"
    assert found["paper.docx"].startswith("--- section 1 ---\nBefore any heading.\n--- section 2: First ---\nFirst\n")
    told, head, columns, *rows = found["t.parquet"].split("\n")
    assert "load this file by itself" in told
    assert (head, columns) == ("Parquet: 50 rows; the first 5", "id | name")
    assert rows == [f"{number} | n{number}" for number in range(5)]
    assert found["sales.csv"] + "\n" == SALES
    assert found["events.jsonl"] == (folder / "events.jsonl").read_text().removesuffix("\n")
    assert children_with("rlm_contexts.helpers") == []


def test_documents_named_one_by_one_are_taken_in_as_well(store: ContextStore, folder: Path) -> None:
    """Ours: several paths, as a pattern gives them."""
    found, _ = load(store, folder / "paper.docx", folder / "report.pdf", folder / "sales.csv")
    assert list(found) == ["paper.docx", "report.pdf", "sales.csv"]


def test_what_cannot_be_read_costs_its_own_place_only(store: ContextStore, folder: Path) -> None:
    """K-10: encrypted, of pictures only, damaged; archives are other files, not documents."""
    write_pdf(folder / "locked.pdf", "text", password="secret")
    write_pdf(folder / "scanned.pdf", "", "")
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7\n" + b"\xff" * 500)
    (folder / "broken.parquet").write_bytes(b"PAR1" + b"x" * 500)
    with zipfile.ZipFile(folder / "other.xlsx", "w") as archive:
        archive.writestr("xl/workbook.xml", "<x/>")
    found, loaded = load(store, folder)
    assert len(found) == 5
    assert loaded.skipped == {"compressed": 1, "unreadable": 3, "without text": 1}


def test_compressed_files_of_a_directory_are_the_text_in_them(store: ContextStore, tmp_path: Path) -> None:
    """K-1, ours: what log rotation leaves; one that is damaged costs its own place, an archive stays packed."""
    logs = tmp_path / "logs"
    logs.mkdir()
    line = b"2024-05-01 ERROR disk full\n"
    (logs / "a.log").write_bytes(line)
    (logs / "b.log.gz").write_bytes(gzip.compress(line * 2) + gzip.compress(line))
    (logs / "c.log.bz2").write_bytes(bz2.compress(line))
    (logs / "d.log.xz").write_bytes(lzma.compress(line))
    long = b"".join(b"%d\n" % number for number in range(1 << 19))
    (logs / "e.log.gz").write_bytes(gzip.compress(long)[:-20])
    (logs / "f.gz").write_bytes(b"\x1f\x8bno gzip")
    (logs / "hosts.key.gz").write_bytes(gzip.compress(b"secret"))
    with tarfile.open(logs / "old.tar.gz", "w:gz") as archive:
        archive.add(logs / "a.log", "a.log")
    found, loaded = load(store, logs)
    text = line.decode().removesuffix("\n")
    assert found["a.log"] == found["c.log.bz2"] == found["d.log.xz"] == text
    assert found["b.log.gz"] == "\n".join([text] * 3)
    assert found["e.log.gz"].startswith("0\n1\n2\n")
    assert found["e.log.gz"].endswith("--- the rest cannot be read ---")
    assert (len(found), loaded.skipped) == (5, {"binary": 1, "secret": 1, "unreadable": 1})


def test_what_the_compressed_files_of_a_directory_unpack_to_is_bounded(
    store: ContextStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K-1, ours: beyond, they are left out; whoever names one has it."""
    monkeypatch.setattr(members, "_UNPACKED", members.PIECE)
    (tmp_path / "logs").mkdir()
    for name in "abc":
        (tmp_path / "logs" / f"{name}.gz").write_bytes(gzip.compress(b"x\n" * members.PIECE))
    found, loaded = load(store, tmp_path / "logs")
    assert loaded.skipped == {"compressed": 2}
    assert len(found["a.gz"]) < 1.1 * members.PIECE
    assert len(load(store, tmp_path / "logs" / "a.gz", tmp_path / "logs" / "b.gz")[0]["a.gz"]) > 1.9 * members.PIECE


def zipped(folder: Path, archive: Path, *names: str) -> Path:
    """An archive of some files of a folder."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name in names:
            file.write(folder / name, f"in/{name}")
    return archive


def test_documents_and_tables_in_a_zip_archive_are_text_as_in_a_directory(store: ContextStore, folder: Path) -> None:
    """K-1, ours: the same text of each; what cannot be read costs its own place only."""
    write_pdf(folder / "locked.pdf", "text", password="secret")
    with zipfile.ZipFile(folder / "other.xlsx", "w") as archive:
        archive.writestr("xl/workbook.xml", "<x/>")
    found, loaded = load(store, folder)
    (folder / "log.gz").write_bytes(gzip.compress(b"packed"))
    path = zipped(folder, folder.parent / "all.zip", *(entry.name for entry in sorted(folder.iterdir())))
    same = put_file(store, path)
    lines, rows = list(Lines(store.open(same.text))), [json.loads(row) for row in same.table.splitlines()]
    texts = {row["path"]: "\n".join(lines[row["line"] : row["line"] + row["lines"]]) for row in rows}
    assert texts == {f"in/{name}": text for name, text in found.items()}
    assert (same.files, same.skipped) == (5, {"compressed": 2, "unreadable": 1})
    assert loaded.skipped == {"compressed": 1, "unreadable": 1}


def test_what_an_archive_unpacks_to_is_bounded(
    store: ContextStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K-13: a small archive of large documents fills no disk; each leaves its bytes behind when it is read."""
    (folder / "bomb.pdf").write_bytes(b"%PDF-1.7\n" + bytes(3_000_000))
    path = zipped(folder, folder.parent / "all.zip", "report.pdf", "bomb.pdf", "sales.csv")
    assert path.stat().st_size < 20_000
    monkeypatch.setattr(members, "_UNPACKED", 2 << 20)
    loaded = put_file(store, path)
    assert (loaded.files, loaded.skipped) == (2, {"document or table beyond 2 MiB of them in an archive": 1})
    with pytest.raises(errors.TextTooLarge):
        put_file(store, zipped(folder, folder.parent / "few.zip", "sales.csv", "report.pdf"), limit=60)


def test_an_archive_is_read_file_by_file_whatever_becomes_of_each(store: ContextStore, tmp_path: Path) -> None:
    """K-1: in its order; long ones in pieces, other characters, empty ones; what is left out is passed over."""
    long = "é long line\n" * 300_000
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("folder/", "")
        for name, text in {
            "empty": "",
            "long.txt": long,
            "blob": b"\0" * 5_000_000,
            "server.pem": "secret",
            "damaged": "x" * 1000,
            "last.txt": "end",
        }.items():
            archive.writestr(name, text)
        at = archive.getinfo("damaged").header_offset
    data = bytearray((tmp_path / "a.zip").read_bytes())
    data[at + 30 + len("damaged") + 2] ^= 0xFF
    (tmp_path / "a.zip").write_bytes(data)
    loaded = put_file(store, tmp_path / "a.zip")
    assert (loaded.files, loaded.skipped) == (3, {"binary": 1, "secret": 1, "unreadable": 1})
    assert store.open(loaded.text).content == f"==> empty <==\n==> long.txt <==\n{long}==> last.txt <==\nend\n"
    assert children_with("rlm_contexts.helpers") == []


def test_an_archive_of_too_many_files_is_refused(
    store: ContextStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K-13: their number is bounded, as that of a directory's files is."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for number in range(4):
            archive.writestr(f"{number}", "x")
    assert put_file(store, tmp_path / "a.zip").files == 4
    monkeypatch.setattr(members, "_MOST_MEMBERS", 3)
    with pytest.raises(errors.SourceError, match="more than 3 files"):
        put_file(store, tmp_path / "a.zip")


@pytest.mark.parametrize(
    ("module", "reasons"),
    [
        ("pypdf", {"pdf without the extra 'documents'": 1}),
        ("docx", {"docx without the extra 'documents'": 1}),
        ("duckdb", {"parquet without the extra 'query'": 1}),
    ],
)
def test_without_the_extra_the_count_says_which_is_needed(
    store: ContextStore, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: str, reasons: object
) -> None:
    """The rest of the directory is loaded."""
    (tmp_path / f"{module}.py").write_text(f"raise ModuleNotFoundError('no', name='{module}')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found, loaded = load(store, folder)
    assert (len(found), loaded.skipped) == (4, reasons)


def test_a_document_that_ends_its_reader_keeps_what_was_read(
    store: ContextStore, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A process that dies on the second page; the text says that there was more."""
    (tmp_path / "pypdf.py").write_text(
        "import os\n"
        "class Page:\n    def extract_text(self): return 'good'\n"
        "class Bad:\n    def extract_text(self): import sys; sys.stdout.flush(); os._exit(3)\n"
        "class PdfReader:\n    is_encrypted = False\n    pages = [Page(), Bad()]\n"
        "    def __init__(self, *a, **k): pass\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found, loaded = load(store, folder)
    assert found["report.pdf"] == "--- page 1 ---\ngood\n--- the rest cannot be read ---"
    assert loaded.skipped == {}


def test_documents_have_their_time_and_a_load_that_nobody_waits_for_ends(
    store: ContextStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes a process: those for which no time is left are counted."""
    meter = Meter()
    meter.stop.set()
    token = watched.set(meter)
    with pytest.raises(errors.SourceError, match="nobody waits"):
        load(store, folder)
    with pytest.raises(errors.HelperTimeout):
        load(store, folder / "report.pdf", folder / "paper.docx")
    watched.reset(token)
    monkeypatch.setattr(members, "_SECONDS", 0.0)
    found, loaded = load(store, folder)
    assert sorted(found) == ["events.jsonl", "sales.csv"]
    assert loaded.skipped == {"document or table after 0 seconds of reading them": 3}


def test_a_directory_with_more_text_than_allowed_is_refused_whatever_it_comes_from(
    store: ContextStore, tmp_path: Path
) -> None:
    """K-13: the limit is of the whole."""
    write_pdf(tmp_path / "a.pdf", *(["x" * 1000] * 20))
    with pytest.raises(errors.TextTooLarge):
        sources.put_files(store, [tmp_path], limit=10_000)
    assert children_with("rlm_contexts.helpers") == []
