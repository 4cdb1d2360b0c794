"""The modules that an import statement names, in one form for all languages.

The parts of a name are separated by ``/``. A name that begins with ``./`` or ``../`` is relative to the file's folder.
Which file of the project a name means is decided later, see `rlm_lock.index.modules`.
"""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping

MOST_IMPORTS = 400
"""Maximum number of names kept of one file."""
_LONGEST = 200
_ALIAS = re.compile(r"\s+as\s+\w+")
_QUOTED = re.compile(r"""["'<`]([^"'<>`]+)["'>`]""")
_SOUND = re.compile(r"[^\s\x00-\x1f\x7f\\]+")


def imports_of(grammar: str, path: str, statements: list[str]) -> tuple[str, ...]:
    """Return the modules that the import statements of a file name, each once, in the order of the file."""
    found: dict[str, None] = {}
    for statement in statements:
        for name in _READERS.get(grammar, _quoted)(statement, path):
            if len(name) <= _LONGEST and _SOUND.fullmatch(name):
                found[name] = None
            if len(found) >= MOST_IMPORTS:
                return tuple(found)
    return tuple(found)


def _python(statement: str, path: str) -> Iterator[str]:
    text = _ALIAS.sub("", re.sub(r"#[^\n]*", "", statement).replace("\\\n", " "))
    if text.startswith("from"):
        module, _, names = text[4:].partition("import")
        module = module.strip()
        dots = len(module) - len(module.lstrip("."))
        base = ("./" if dots == 1 else "../" * (dots - 1)) + module[dots:].replace(".", "/").replace(" ", "")
        yield base.rstrip("/") or "."
        for name in re.sub(r"[()\s]", "", names).split(","):
            if name not in {"", "*"}:
                yield base + name if base.endswith("/") else f"{base}/{name}"
    else:
        for name in text.removeprefix("import").split(","):
            yield name.strip().replace(".", "/")


def _quoted(statement: str, path: str) -> Iterator[str]:
    quoted = _QUOTED.search(statement)
    yield quoted.group(1).strip() if quoted else statement.strip("\"'`<> ")


def _dotted(statement: str, path: str) -> Iterator[str]:
    """Yield the modules of Java and C#: `import static a.b.C.*;`, `global using X = A.B;`."""
    text = re.sub(r"^\s*(?:global\s+)?(?:import|using)\s+(?:static\s+|unsafe\s+)?", "", statement)
    name = text.split("=")[-1].strip(" ;\n\t").removesuffix(".*")
    yield re.sub(r"<.*|\s", "", name).replace(".", "/")


def _rust(statement: str, path: str) -> Iterator[str]:
    stem = posixpath.splitext(posixpath.basename(path))[0]
    # The module of `mod.rs` is its folder; the children of any other file are in a folder with the file's name.
    children = "./" if stem in {"mod", "lib", "main"} else f"./{stem}/"
    parent = "../" if stem in {"mod", "lib", "main"} else "./"
    text = re.sub(r"/\*.*?\*/|//[^\n]*|#\[[^\]]*\]", "", statement, flags=re.DOTALL)
    text = re.sub(r"^\s*(?:pub\s*(?:\([^)]*\))?\s*)?", "", text).strip(" ;\n")
    if text.startswith("mod "):
        yield f"{children}{text[4:].strip()}"
        return
    for name in _rust_tree(_ALIAS.sub("", text.removeprefix("use").strip())):
        parts = [part.strip() for part in name.split("::") if part.strip()]
        if parts and parts[-1] in {"self", "*"}:
            del parts[-1]
        if not parts:
            continue
        if parts[0] == "self":
            yield (children + "/".join(parts[1:])).rstrip("/")
        elif parts[0] == "super":
            ups = sum(1 for _ in itertools.takewhile("super".__eq__, parts))
            yield (parent + "../" * (ups - 1)).removeprefix("./" if ups > 1 else "") + "/".join(parts[ups:])
        else:
            yield "/".join(parts)


def _rust_tree(text: str) -> Iterator[str]:
    """Yield each path of `a::{b, c::{d, e}}`, however deeply it is nested."""
    prefixes = [""]
    current = ""
    for piece in re.split(r"([{},])", text):
        if piece == "{":
            prefixes.append(prefixes[-1] + current.strip())
            current = ""
        elif piece in {"}", ","}:
            if current.strip():
                yield prefixes[-1] + current.strip()
            current = ""
            if piece == "}" and len(prefixes) > 1:
                prefixes.pop()
        else:
            current += piece
    if current.strip():
        yield prefixes[-1] + current.strip()


def _ruby(statement: str, path: str) -> Iterator[str]:
    quoted = _QUOTED.search(statement)
    if quoted:
        name = quoted.group(1).strip().removesuffix(".rb")
        yield f"./{name}" if statement.startswith("require_relative") and not name.startswith(".") else name


def _php(statement: str, path: str) -> Iterator[str]:
    if quoted := _QUOTED.search(statement):
        name = quoted.group(1).strip()
        yield f"./{name.lstrip('/')}" if "__DIR__" in statement or "dirname" in statement else name
        return
    text = re.sub(r"^\s*use\s+(?:function\s+|const\s+)?", "", _ALIAS.sub("", statement)).strip(" ;\n")
    base, brace, names = text.partition("{")
    for name in names.rstrip("} \n").split(",") if brace else [""]:
        for each in (base + name.strip()).split(","):
            yield each.strip(" \\\n").replace("\\", "/")


def _bash(statement: str, path: str) -> Iterator[str]:
    name = statement.strip("\"' ")
    # The content of a variable is unknown; the name after it often is not.
    yield re.split(r"""[$`][^/]*/|\)["']?/""", name)[-1].strip("\"' ")


_READERS: Mapping[str, Callable[[str, str], Iterator[str]]] = {
    "bash": _bash,
    "c_sharp": _dotted,
    "java": _dotted,
    "php": _php,
    "python": _python,
    "ruby": _ruby,
    "rust": _rust,
}
"""How each language names a module; all others quote it."""
