"""One word for one thing: the glossary's words are in use, retired ones are nowhere, pages name files."""

import re
import tomllib
from pathlib import Path

import pytest

HISTORY = ("CHANGELOG.md", "LICENSE", "tests/project/test_glossary.py")
"""Files that may hold retired words: what was, the licence's own text, and this list."""
RETIRED = {
    "door (attachment)": r"(?<![a-z])doors?(?![a-z])",
    "kernel host (supervisor)": r"\bkernel[ _-]hosts?\b|\brlm_kernel\.host\b|\bHost(?:Client|Gone)\b",
    "kernel image (worker)": r"\bkernel[ _-]images?\b|\brlm_kernel\.image\b",
    "leash (address filter)": r"(?<![a-z])leash(?:e[ds])?(?![a-z])",
    "inert (sanitized)": r"(?<![a-z])inert(?![a-z])",
    "confined process (helper process, worker)": r"\bconfined[ _-](?:process(?:es)?|kernels?|jobs?|child(?:ren)?)\b",
    "rendezvous (discovery)": r"rendezvous",
    "hello (handshake)": r"\bhello lines?\b|\b(?:a|the|client's) hello\b|\bhello (?:before|refused)\b|ClientHello",
    "list keeper (list cache)": r"\blist[ _-]?keepers?\b",
    "settle a query (resolve)": r"\bop: settle\b|\bsettle[sd]?\b[^.|]{0,50}\bquer(?:y|ies)\b"
    r"|\bquer(?:y|ies)\b[^.|]{0,50}\bsettle[sd]?\b",
    "wall of the system (OS wall)": r"\boperating[- ]system(?:'s)? wall\b|\b(?:first|second) wall\b",
    "lease on a text (pin)": r"\bleases?\b[^.|\n:(]{0,40}\b(?:texts?|contexts?|collector)\b"
    r"|\b(?:texts?|contexts?|collector)\b[^.|\n:(]{0,40}\bleases?\b",
}
"""What is retired with its new word, and a pattern that ordinary English does not match."""


def _row_pattern(columns: int) -> re.Pattern[str]:
    return re.compile(r"^\|" + r"([^|\n]+)\|" * columns + "$", re.MULTILINE)


def _glossary(root: Path) -> dict[str, str]:
    """Return the words of docs/architecture.md's glossary with their meanings."""
    section = (root / "docs/architecture.md").read_text(encoding="utf-8").split("\n## Glossary\n")[1].split("\n## ")[0]
    rows = [(word.strip(), meaning.strip()) for word, meaning in _row_pattern(2).findall(section)]
    return {word: meaning for word, meaning in rows if word != "word" and not set(word) <= {"-"}}


def _text(path: Path) -> str:
    content = path.read_bytes()
    return "" if b"\0" in content else content.decode("utf-8", "ignore")


def test_every_word_of_the_glossary_is_used(tracked_files: list[Path], root: Path) -> None:
    """A word that nothing uses explains nothing."""
    words = _glossary(root)
    assert 25 <= len(words) <= 45
    read = [path for path in tracked_files if path.suffix in {".md", ".py"} and path.name != "test_glossary.py"]
    pages = "\n".join(_text(path) for path in read).replace((root / "docs/architecture.md").read_text(), "")
    patterns = {word: r"\b" + word.replace(" ", "[ _-]?") for word in words}
    unused = [word for word, pattern in patterns.items() if not re.search(pattern, pages, re.IGNORECASE)]
    assert unused == []


def test_every_meaning_is_a_sentence(root: Path) -> None:
    """Each word is explained once, and by other words."""
    for word, meaning in _glossary(root).items():
        assert meaning.endswith("."), word
        assert not re.match(rf"(?:an? )?{word}\b", meaning, re.IGNORECASE), word


@pytest.mark.parametrize("word", RETIRED)
def test_a_retired_word_is_nowhere(word: str, tracked_files: list[Path], root: Path) -> None:
    """Two words for one thing make a reader look for two things."""
    pattern = re.compile(RETIRED[word], re.IGNORECASE)
    found = [
        f"{path.relative_to(root)}:{text.count(chr(10), 0, match.start()) + 1}: {match.group()}"
        for path in tracked_files
        if str(path.relative_to(root)) not in HISTORY
        for text in [_text(path)]
        for match in pattern.finditer(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("door (attachment)", "rlm-kernel doors list"),
        ("settle a query (resolve)", "a query is settled by its answer"),
        ("wall of the system (OS wall)", "behind the operating system's wall"),
        ("lease on a text (pin)", "the lease keeps a text from the collector"),
        ("hello (handshake)", "the hello of a connection"),
        ("confined process (helper process, worker)", "in a confined process"),
    ],
)
def test_the_patterns_find_what_is_retired(word: str, sentence: str) -> None:
    """And leave ordinary English alone."""
    pattern = re.compile(RETIRED[word], re.IGNORECASE)
    assert pattern.search(sentence)
    ordinary = "The kernel is confined by a policy. It prints 'hello'. We settle for less. Outdoors. A lease is a time."
    assert not pattern.search(ordinary)


def test_the_table_of_changes_names_files_that_are_there(root: Path) -> None:
    """CONTRIBUTING.md says for eight typical changes which files to open."""
    section = (root / "CONTRIBUTING.md").read_text(encoding="utf-8").split("| to change | open |")[1].split("\n\n")[0]
    rows = _row_pattern(2).findall(section)[1:]
    assert len(rows) >= 8
    for change, files in rows:
        named = re.findall(r"`([\w./-]+)`", files)
        assert named, change
        assert [name for name in named if not (root / name).exists()] == [], change


def test_the_table_of_folders_has_each_package(root: Path) -> None:
    """CONTRIBUTING.md says of each package what it holds and what it may import."""
    tools = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    page = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `\w+/` \| `(\w+)`", page, re.MULTILINE)
    assert sorted(rows) == sorted(tools["importlinter"]["root_packages"])


def test_the_files_of_the_boundary_are_there(root: Path) -> None:
    """SECURITY.md names the files that need a second reader, and the tests that prove what it says."""
    page = (root / "SECURITY.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:[a-z_]+/)+[\w.]*)`", page)
    assert len(named) > 20
    assert [name for name in named if not (root / name).exists()] == []


def test_the_drawing_shows_where_things_are(root: Path) -> None:
    """Who reads only the drawing of the processes can name the folder of each part."""
    page = (root / "docs/architecture.md").read_text(encoding="utf-8")
    drawing = page.split("\n## Processes\n")[1].split("```")[1]
    folders = re.findall(r"\b((?:mcp_server|kernel|contexts|memory|sandbox)/[\w/]+)", drawing)
    assert [folder for folder in folders if not (root / folder).is_dir()] == []
    assert {"front", "daemon", "supervisor", "zygote", "worker", "helper"} <= set(
        re.findall(r"^[ │└]+(\w+)", drawing, re.MULTILINE)
    )
    for part in ("language_wall", "os_wall", "kernel/rlm_kernel/supervisor", "text/", "tools/", "formats/", "web/"):
        assert part in drawing, part
