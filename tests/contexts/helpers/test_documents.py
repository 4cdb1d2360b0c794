"""PDF and Word files: real ones, and ones that mean harm, read by a process that may do nothing else."""

import io
import json
import zipfile
from pathlib import Path

import pytest
from sample_files import write_pdf, write_word
from session_processes import children_with

from rlm_contexts import errors
from rlm_contexts.helpers import requests
from rlm_contexts.helpers.requests import parts
from rlm_contexts.loading.sources import LoadedSource, put_file
from rlm_contexts.store.store import ContextStore


def content(store: ContextStore, loaded: LoadedSource) -> str:
    return store.open(loaded.text).content


def names(loaded: LoadedSource) -> list[str]:
    return [json.loads(line)["path"] for line in loaded.table.splitlines()]


def test_a_pdf_is_its_pages_with_a_table_of_them(store: ContextStore, tmp_path: Path) -> None:
    """K-1, ours: recognised by its first bytes."""
    loaded = put_file(store, write_pdf(tmp_path / "report", "First page", "", "Third page"))
    assert content(store, loaded) == "==> page 1 <==\nFirst page\n==> page 2 <==\n==> page 3 <==\nThird page\n"
    assert names(loaded) == ["page 1", "page 2", "page 3"]


def test_a_word_file_is_its_sections_with_tables(store: ContextStore, tmp_path: Path) -> None:
    """K-1, ours: a section begins with each heading of the first level."""
    loaded = put_file(store, write_word(tmp_path / "paper.docx"))
    assert names(loaded) == ["section 1", "section 2: First", "section 3: Second"]
    assert "First\nOne caf\xe9.\nDetail\na | b\n1 2 | 3\n" in content(store, loaded)


def test_what_cannot_be_read_says_why_and_costs_its_own_load_only(store: ContextStore, tmp_path: Path) -> None:
    """K-10: damaged, encrypted, without text; nothing is stored and no process stays."""
    path = write_pdf(tmp_path / "a.pdf", "text")
    for spoiled, why in (
        (write_pdf(tmp_path / "b.pdf", "text", password="secret").read_bytes(), "encrypted"),
        (write_pdf(tmp_path / "c.pdf", "").read_bytes(), "OCR"),
        (b"%PDF-1.7\n" + b"\xff" * 5000, "damaged"),
        (path.read_bytes()[:150], "damaged"),
    ):
        path.write_bytes(spoiled)
        with pytest.raises(errors.SourceError, match=why):
            put_file(store, path)
    broken = io.BytesIO()
    with zipfile.ZipFile(broken, "w") as archive:
        archive.writestr("[Content_Types].xml", "<x>")
        archive.writestr("word/document.xml", "<w:document>")
    path.write_bytes(broken.getvalue())
    with pytest.raises(errors.SourceError, match="docx"):
        put_file(store, path)
    assert list((store.root / "texts").iterdir()) == list((store.root / "drafts").iterdir()) == []
    assert children_with("rlm_contexts.helpers") == []


def test_a_word_file_that_unpacks_without_end_is_stopped(
    store: ContextStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K-13: a bomb fails on the memory of its process, here less of it than usual."""
    monkeypatch.setattr(requests, "_MEMORY", 96 << 20)
    path = write_word(tmp_path / "bomb.docx")
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data) if name != "word/document.xml" else None
        with archive.open("word/document.xml", "w", force_zip64=True) as file:
            for _ in range(150):
                file.write(b" " * (1 << 20))
    with pytest.raises((errors.HelperDied, errors.SourceError)):
        put_file(store, path)


def test_more_text_than_allowed_is_refused(store: ContextStore, tmp_path: Path) -> None:
    """K-13: the limit is of the text, not of the file."""
    path = write_pdf(tmp_path / "a.pdf", *(["x" * 1000] * 20))
    with pytest.raises(errors.TextTooLarge):
        put_file(store, path, limit=10_000)
    assert children_with("rlm_contexts.helpers") == []


def test_without_the_library_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is read."""
    (tmp_path / "pypdf.py").write_text("raise ModuleNotFoundError('no', name='pypdf')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with (
        write_pdf(tmp_path / "a.pdf", "x").open("rb") as file,
        pytest.raises(errors.MissingExtra, match=r"pip install .*pypdf"),
    ):
        list(parts(file.fileno(), "pdf", 1000))
