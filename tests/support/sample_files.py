"""Real files of formats that no text editor writes, made by the libraries that others make them with."""

import bz2
import gzip
import lzma
import zipfile
from pathlib import Path

try:
    from compression import zstd
except ImportError:
    from backports import zstd

PACKERS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstd.compress}
"""How to make each kind of compressed file, by its usual ending."""
SALES = "shop,amount\nnorth,10.5\nsouth,4\nnorth,1\n"


def write_pdf(path: Path, *pages: str, password: str = "") -> Path:
    """A PDF file of one line a page; a page of "" has no text."""
    from pypdf import PdfWriter
    from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

    writer = PdfWriter()
    font = DictionaryObject({
        NameObject("/Type"): NameObject("/Font"),
        NameObject("/Subtype"): NameObject("/Type1"),
        NameObject("/BaseFont"): NameObject("/Helvetica"),
    })  # fmt: skip
    for text in pages:
        page = writer.add_blank_page(200, 200)
        page[NameObject("/Resources")] = DictionaryObject({
            NameObject("/Font"): DictionaryObject({NameObject("/F1"): writer._add_object(font)})
        })  # fmt: skip
        stream = DecodedStreamObject()
        stream.set_data(f"BT /F1 12 Tf 10 100 Td ({text}) Tj ET".encode("latin-1"))
        page[NameObject("/Contents")] = writer._add_object(stream)
    if password:
        writer.encrypt(password)
    writer.write(path)
    return path


def write_word(path: Path) -> Path:
    """A Word file with an opening, two sections and a table."""
    import docx

    document = docx.Document()
    document.add_paragraph("Before any heading.")
    document.add_heading("First", level=1)
    document.add_paragraph("One caf\xe9.")
    document.add_heading("Detail", level=2)
    table = document.add_table(rows=2, cols=2)
    for cell, text in zip((cell for row in table.rows for cell in row.cells), ("a", "b", "1\n2", "3"), strict=True):
        cell.text = text
    document.add_heading("Second", level=1)
    document.save(str(path))
    return path


def write_samples(folder: Path, log: str) -> None:
    """One file of every kind that can be loaded."""
    import pandas as pd

    (folder / "app.log").write_text(log)
    for ending, pack in PACKERS.items():
        (folder / f"app.log.{ending}").write_bytes(pack(log.encode()))
    (folder / "project" / "src").mkdir(parents=True)
    (folder / "project" / "README.md").write_text("# A project\n")
    (folder / "project" / "src" / "main.py").write_text("print('hello')\n")
    (folder / "project" / "logo.png").write_bytes(b"\x89PNG\0")
    with zipfile.ZipFile(folder / "logs.zip", "w") as archive:
        archive.write(folder / "app.log", "app.log")
    (folder / "sales.csv").write_text(SALES)
    (folder / "events.jsonl").write_text('{"shop": "north", "open": true}\n{"shop": "south", "open": false}\n')
    pd.read_csv(folder / "sales.csv").to_parquet(folder / "sales.parquet")
    write_pdf(folder / "report.pdf", "The first page", "The second page")
    write_word(folder / "paper.docx")
