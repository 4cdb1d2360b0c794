"""The names of our modules in docstrings, comments and pages: what is moved or renamed must not be named any more."""

import re
from collections.abc import Mapping
from pathlib import Path

REFERENCE = re.compile(r"(?<!`)`{1,2}(rlm_\w+(?:\.\w+)+)(?:\(\))?`{1,2}(?!`)")


def modules(root: Path) -> Mapping[str, Path]:
    """Our modules and packages, by their dotted names."""
    files = [file.relative_to(root) for file in root.glob("*/rlm_*/**/*") if file.suffix in {".py", ".pyi", ".c"}]
    names = {".".join(file.with_suffix("").parts[1:]).removesuffix(".__init__"): root / file for file in files}
    assert len(names) > 400
    return names


def is_there(name: str, known: Mapping[str, Path]) -> bool:
    """Whether there is such a module, or one in whose text the rest of the name stands."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        if (file := known.get(".".join(parts[:cut]))) is not None:
            text = file.read_text(encoding="utf-8")
            return all(re.search(rf"\b{word}\b", text) for word in parts[cut:])
    return False


def test_whatever_is_referred_to_is_there(root: Path) -> None:
    """Who follows a reference finds it."""
    known = modules(root)
    pages = [*known.values(), *root.glob("*.md"), *root.glob("docs/*.md")]
    found = [(page.name, name) for page in pages for name in REFERENCE.findall(page.read_text(encoding="utf-8"))]
    assert len(found) > 50
    assert [(page, name) for page, name in found if not is_there(name, known)] == []
