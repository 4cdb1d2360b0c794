"""Manifests of Python: pyproject.toml, requirements, setup.cfg, setup.py."""

from __future__ import annotations

import ast
import configparser
import itertools
import re
import warnings
from collections.abc import Iterator, Mapping

from rlm_lock.sections.manifests.documents import table, text, texts, toml_table
from rlm_lock.sections.manifests.model import RUNTIME, Declaration, Declared, LockFile, Unreadable

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]{0,199})\s*(?:\[[^\]]{0,500}\])?\s*([^;#]{0,500})")
_LONGEST_PROGRAM = 64 * 1024
_LONGEST_LINE = 1000
"""The time in which the standard library reads a line of a configuration grows with the square of its length."""

_DEEPEST_PROGRAM = 60


def _declared(requirement: str, group: str = RUNTIME) -> Iterator[Declaration]:
    """What one line such as ``name[extra] >= 1; marker`` declares: one dependency, or nothing."""
    match = _REQUIREMENT.match(requirement)
    if match:
        rest = match[2].strip()
        yield Declaration(normal_python_name(match[1]), rest, group, _local(rest.removeprefix("@").strip()))


def normal_python_name(name: str) -> str:
    """Return a name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).strip("-").lower()


def _local(place: str) -> str:
    if place.startswith("file:"):
        return place.removeprefix("file:").removeprefix("//")
    return place if place.startswith(("./", "../")) else ""


def read_pyproject(source: str) -> Declared:
    """Read PEP 621, dependency groups, Poetry and the sources of uv."""
    whole = toml_table(source)
    project, poetry = table(whole, "project"), table(whole, "tool", "poetry")
    found = Declared(
        name=text(project, "name") or text(poetry, "name"), version=text(project, "version") or text(poetry, "version")
    )
    lists = [(RUNTIME, texts(project, "dependencies")), ("build", texts(whole, "build-system", "requires"))]
    lists += [(group, texts(extra)) for group, extra in table(project, "optional-dependencies").items()]
    lists += [(group, texts(listed)) for group, listed in table(whole, "dependency-groups").items()]
    own = normal_python_name(found.name)
    for group, requirements in lists:
        found.dependencies += [
            one for requirement in requirements for one in _declared(requirement, group) if one.name != own
        ]
    found.dependencies += _of_poetry(poetry)
    sources = table(whole, "tool", "uv", "sources")
    places = {normal_python_name(name): text(place, "path") for name, place in sources.items()}
    for dependency in found.dependencies:
        dependency.local = dependency.local or places.get(dependency.name, "")
    found.members = texts(whole, "tool", "uv", "workspace", "members")
    scripts = [table(project, "scripts"), table(project, "gui-scripts"), table(poetry, "scripts")]
    found.entries = [text(place) for group in scripts for place in group.values() if text(place)]
    return found


def _of_poetry(poetry: Mapping[str, object]) -> Iterator[Declaration]:
    groups = [(RUNTIME, table(poetry, "dependencies")), ("dev", table(poetry, "dev-dependencies"))]
    groups += [(name, table(group, "dependencies")) for name, group in table(poetry, "group").items()]
    for group, dependencies in groups:
        for name, wanted in dependencies.items():
            if name.lower() != "python":
                requirement = text(wanted) or text(wanted, "version") or text(wanted, "git")
                yield Declaration(normal_python_name(name), requirement, group, text(wanted, "path"))


def read_requirements(source: str) -> Declared:
    """Read a requirements file; one with hashes was written by a program, and is a lock file."""
    if "--hash=" in source:
        raise LockFile
    found = Declared()
    for line in source.replace("\\\n", " ").splitlines():
        words = re.sub(r"(^|\s)#.*", "", line[:1000]).split()
        if not words:
            continue
        option, _, value = words[0].partition("=")
        argument = value or (words[1] if len(words) > 1 else "")
        if option in ("-r", "--requirement") and argument:
            found.includes.append(argument)
        elif option in ("-e", "--editable") and argument:
            found.dependencies += _by_place(argument)
        elif not option.startswith("-"):
            found.dependencies += list(_by_place(" ".join(words))) or list(_declared(" ".join(words)))
    return found


def _by_place(place: str) -> Iterator[Declaration]:
    """A dependency that is named by where it lies: a folder, or a URL that ends with its name."""
    url, _, fragment = place.partition("#egg=")
    if local := _local(place.partition("[")[0]) or (place if place == "." else ""):
        name = local.rstrip("/").rpartition("/")[2].strip(".")
        yield Declaration(normal_python_name(name) or "this project", place, RUNTIME, local)
    elif "://" in url and " @ " not in url:
        name = fragment or url.rstrip("/").rpartition("/")[2].partition("@")[0].removesuffix(".git")
        yield Declaration(normal_python_name(name) or url, url)


def read_setup_cfg(source: str) -> Declared:
    """Read what setuptools reads of setup.cfg."""
    if len(source) > _LONGEST_PROGRAM or max(map(len, source.splitlines()), default=0) > _LONGEST_LINE:
        raise Unreadable(f"It is longer than {_LONGEST_PROGRAM:,} characters, or a line of it than {_LONGEST_LINE:,}.")
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(source)
    except (configparser.Error, ValueError, AttributeError) as error:
        # AttributeError: a value that goes on before any key, in some versions of the library
        raise Unreadable(f"This is no configuration that can be read: {str(error)[:100]!r}.") from None
    sections = {name: dict(parser.items(name)) for name in parser.sections()}
    options, metadata = sections.get("options", {}), sections.get("metadata", {})
    found = Declared(name=metadata.get("name") or "", version=metadata.get("version") or "")
    lists = [(RUNTIME, options.get("install_requires")), ("build", options.get("setup_requires"))]
    lists += [("test", options.get("tests_require"))]
    lists += list(sections.get("options.extras_require", {}).items())
    for group, listed in lists:
        for line in (listed or "").splitlines():
            found.dependencies += _declared(line, group)
    found.entries = _scripts(sections.get("options.entry_points", {}).get("console_scripts") or "")
    return found


def _scripts(lines: str) -> list[str]:
    return [place.strip() for _, equals, place in (line.partition("=") for line in lines.splitlines()) if equals]


def read_setup_py(source: str) -> Declared:
    """Read the literals that setup.py hands to `setup`; it is not executed."""
    if len(source) > _LONGEST_PROGRAM:
        raise Unreadable(f"It is longer than {_LONGEST_PROGRAM:,} characters.")
    steps = itertools.accumulate(1 if c in "([{" else -1 for c in source if c in "([{}])")
    if max(steps, default=0) > _DEEPEST_PROGRAM:
        raise Unreadable("It is nested too deep.")
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise Unreadable("This is no Python that can be read.") from None
    names = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found = Declared()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node.func) == "setup":
            _take_arguments(found, {word.arg or "": _literal(word.value, names) for word in node.keywords})
    return found


def _called(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _literal(value: ast.expr, names: Mapping[str, ast.expr]) -> object:
    """A literal, or the one that a name of the module stands for."""
    try:
        return ast.literal_eval(names.get(value.id, value) if isinstance(value, ast.Name) else value)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


def _take_arguments(found: Declared, arguments: Mapping[str, object]) -> None:
    found.name, found.version = text(arguments, "name"), text(arguments, "version")
    lists = [(RUNTIME, texts(arguments, "install_requires")), ("build", texts(arguments, "setup_requires"))]
    lists += [("test", texts(arguments, "tests_require"))]
    lists += [(str(group), texts(extra)) for group, extra in table(arguments, "extras_require").items()]
    for group, requirements in lists:
        for line in (line for requirement in requirements for line in requirement.splitlines()):
            found.dependencies += _declared(line, group)
    found.entries += _scripts("\n".join(texts(arguments, "entry_points", "console_scripts")))
