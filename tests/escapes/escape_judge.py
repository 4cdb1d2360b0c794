"""Runs one case in the process it is in, and says what the case got. Loaded in the zygote, before its forks.

``behind_wall`` runs it behind the language wall alone, ``in_the_open`` without it: in an unconfined process that
is the control of the case, in a confined one the trial of the OS wall. There the loot of a case,
however it came by it, is *spent*: with a frame, a module, a raw type ... it is tried to read the secret file, to write
outside, to start a program and so on. What counts is what then really happened.
"""

from __future__ import annotations

import argparse
import asyncio
import builtins
import contextlib
import copy
import datetime as dt
import encodings.unicode_escape  # noqa: F401 - Jinja looks for it, and another user may not reach it
import inspect
import io
import os
import types
from ast import PyCF_ALLOW_TOP_LEVEL_AWAIT
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from escape_loot import SECRET, capability, holds_secret, must_be_tried
from escape_originals import ATTACKS

from rlm_sandbox.language_wall import wall as wall_module
from rlm_sandbox.language_wall.modules import copies as modules
from rlm_sandbox.language_wall.modules import type_slots
from rlm_sandbox.language_wall.modules.system import new_loop
from rlm_sandbox.language_wall.wall import LanguageWall
from rlm_sandbox.policy import FilePolicy, LanguagePolicy, Policy, load_policy

VARIABLE: Final = "RLM_TEST_SECRET"

Places = dict[str, str]
"""The folders of a case: workspace (to read), scratch (to write), outside (holds the secret)."""

_CHANGED_IN_PLACE: Final = (
    (copy, "_reconstruct"),
    (copy, "setattr"),
    (argparse, "setattr"),
    (inspect.Signature, "from_callable"),
)
_ORIGINALS: Final = [(owner, name, vars(owner).get(name)) for owner, name in _CHANGED_IN_PLACE]
"""What the language wall changes in the standard library; a control runs without it."""
_DATE_REPLACE: Final = vars(dt.date)["replace"]

# Libraries are changed in place by `escape_hardened`, where cases meet the language wall: a control runs without it.
modules.__dict__["harden_libraries"] = lambda: None
wall_module.__dict__["freeze"] = lambda: None
for _policy in ("default", "data"):
    LanguageWall.preload(load_policy(_policy))

_CONTAINERS: Final = (list, tuple, set, frozenset)


def capabilities(namespace: dict[str, Any], works: Callable[[Any], bool]) -> list[str]:
    """What is in a namespace that must not be there: in its variables, and in the containers among them.

    ``works`` says of an original whether the session can do something with it.
    """
    found = []
    for name, value in list(namespace.items()):
        if name == "__builtins__":
            continue
        inner = value if type(value) in _CONTAINERS else list(value.values()) if type(value) is dict else ()
        held = [capability(part) for part in (value, *inner) if not must_be_tried(part) or works(part)]
        held = [what for what in held if what]
        found += [f"{name}: {what}" for what in held if name == "loot" or not _is_given(what)]
    return found


def _is_given(what: str) -> bool:
    """The session's own `os` gives some functions of this module, under the audit hook: no loot by themselves."""
    return what.removeprefix("class ").startswith("posix.")


# -- behind the language wall


def behind_wall(code: str, policy: str, places: Places) -> dict[str, Any]:
    """Run a case behind the language wall.

    Returns ``got`` (list of loot), ``held_by`` (what stopped it) and ``absent`` (whether that was only a module, or a
    name of one, that the session is not given; None where a library is not installed).
    """
    os.environ[VARIABLE] = SECRET
    rules = load_policy("default" if policy == "evaluating" else policy)
    files = FilePolicy(read=(places["workspace"],), write=(places["scratch"],))
    blocked = () if policy == "evaluating" else rules.language.blocked_names
    language = LanguagePolicy(imports=rules.language.imports, blocked_names=blocked)
    wall = LanguageWall(Policy(language=language, files=files))
    namespace: dict[str, Any] = {}
    output = io.StringIO()
    held_by = ""
    absent: bool | None = False
    try:
        _run_walled(wall, code, namespace, output)
    except BaseException as error:  # whatever stops it
        held_by, absent = f"{type(error).__name__}: {_text(error)}", _is_absent(error)
    got = capabilities(namespace, lambda original: _works(wall, original, places))
    if holds_secret(output.getvalue() + held_by):
        got.append("output: the secret")
    return {"got": got + _changes(places), "held_by": held_by, "absent": absent}


def _is_absent(error: BaseException) -> bool | None:
    """Whether an error says that a session is not given a module, or a name of one; None where it is not installed."""
    if isinstance(error, AttributeError):
        return isinstance(error.obj, types.ModuleType)
    return None if type(error) is ModuleNotFoundError else isinstance(error, ImportError)


def _works(wall: LanguageWall, original: Any, places: Places) -> bool:
    """Whether code of the session gets anything by an original: each attack is tried in a namespace of its own."""
    for attack in ATTACKS:
        namespace: dict[str, Any] = {"it": original}
        with contextlib.suppress(BaseException):
            _run_walled(wall, attack.replace("<outside>", places["outside"]), namespace, io.StringIO())
        loot = namespace.get("loot")
        if capability(loot) and not must_be_tried(loot):
            return True
    return False


def _run_walled(wall: LanguageWall, code: str, namespace: dict[str, Any], output: io.StringIO) -> None:
    made = wall.compile(code, "<cell>", "exec", PyCF_ALLOW_TOP_LEVEL_AWAIT)
    wall.prepare(namespace)
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output), wall.user():
        result = eval(made, namespace)
        if inspect.iscoroutine(result):
            loop = new_loop()
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(result)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:
        return "(no message)"


def _changes(places: Places) -> list[str]:
    """What the case left where it may not be: files outside, copies of the secret in its own folder."""
    found = []
    outside = Path(places["outside"])
    if not outside.is_dir() or [entry.name for entry in outside.iterdir()] != ["secret.txt"]:
        found.append("outside: changed")
    elif (outside / "secret.txt").read_text(encoding="utf-8") != SECRET:
        found.append("outside: the secret was changed")
    if [entry.name for entry in Path(places["workspace"]).iterdir()] != ["data.txt"]:
        found.append("workspace: changed")
    return found + copies_of_secret(Path(places["scratch"]))


def copies_of_secret(folder: Path) -> list[str]:
    """Files below a folder that hold the secret, and links that lead out of it."""
    links = [path for path in folder.rglob("*") if path.is_symlink() and not path.resolve().is_relative_to(folder)]
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    copies = [path for path in files if SECRET.encode() in path.read_bytes()]
    return [f"scratch: {path.name} leads to the secret" for path in (*links, *copies)]


# -- without it


def in_the_open(code: str, places: Places, environment: bool) -> dict[str, Any]:
    """Run a case as plain Python does and spend its loot; returns ``loot`` (its name) and ``spent`` (effects).

    ``environment``: whether the machine's variables are there (a worker's environment is empty).
    """
    for owner, name, original in _ORIGINALS:
        setattr(owner, name, original if original is not None else setattr)
    type_slots.namespace_of(dt.date)["replace"] = _DATE_REPLACE  # a class in C takes no assignments
    type_slots.modified(dt.date)
    os.environ.clear()
    if environment:
        os.environ[VARIABLE] = SECRET
    namespace: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
    output = io.StringIO()
    held_by = ""
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            made = compile(code, "<cell>", "exec", PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
            result = eval(made, namespace)
            if inspect.iscoroutine(result):
                asyncio.run(result)
    except BaseException as error:
        held_by = f"{type(error).__name__}: {_text(error)}"
    loot = namespace.get("loot")
    return {"loot": capability(loot), "spent": sorted(spend(loot, places)), "held_by": held_by}


def spend(loot: Any, places: Places) -> set[str]:
    """Use loot: which effects outside the session it leads to."""
    if isinstance(loot, str | bytes | bytearray):
        return {what for what in (holds_secret(loot),) if what}
    if not capability(loot):
        return set()
    raw = _builtins_through(loot)
    if raw is None:
        return set()
    done = set()
    for name, effect in _EFFECTS.items():
        with contextlib.suppress(BaseException):
            if effect(raw, places):
                done.add(name)
    return done


def _builtins_through(loot: Any) -> dict[str, Any] | None:
    """The real builtins, by way of what the case got."""
    for step in _WAYS:
        with contextlib.suppress(Exception):
            found = step(loot)
            found = vars(found) if isinstance(found, types.ModuleType) else found
            if found is not None and found.get("open") is builtins.open:
                return dict(found)
    return None


def _subclasses(loot: Any) -> Iterator[type]:
    yield from type.__subclasses__(type(loot).__mro__[-1])


def _through_a_class(loot: Any) -> Any:
    for cls in _subclasses(loot):
        if "__builtins__" in getattr(cls.__init__, "__globals__", ()):
            return cls.__init__.__globals__["__builtins__"]  # type: ignore[misc]
    return None


_WAYS: Final[tuple[Callable[[Any], Any], ...]] = (
    lambda loot: loot.f_builtins,
    lambda loot: loot.__globals__["__builtins__"],
    lambda loot: loot["__builtins__"],
    lambda loot: loot if "open" in loot else None,
    lambda loot: vars(loot)["__builtins__"],
    lambda loot: loot.__builtins__,
    lambda loot: loot.__self__,
    lambda loot: types.FunctionType(loot, {}).__builtins__,
    lambda loot: loot.__init__.__globals__["__builtins__"],
    _through_a_class,
)


def _reads(raw: dict[str, Any], places: Places) -> bool:
    return raw["open"](f"{places['outside']}/secret.txt").read() == SECRET  # type: ignore[no-any-return]


def _writes(raw: dict[str, Any], places: Places) -> bool:
    return bool(raw["open"](f"{places['outside']}/new", "w").write("x"))


def _knows(raw: dict[str, Any], places: Places) -> bool:
    return raw["__import__"]("os").environ[VARIABLE] == SECRET  # type: ignore[no-any-return]


def _starts(raw: dict[str, Any], places: Places) -> bool:
    system = raw["__import__"]("os")
    pid = system.posix_spawn("/bin/true", ["true"], {})
    return system.waitpid(pid, 0)[0] == pid  # type: ignore[no-any-return]


def _connects(raw: dict[str, Any], places: Places) -> bool:
    socket = raw["__import__"]("socket")
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()
    return True


def _signals(raw: dict[str, Any], places: Places) -> bool:
    system = raw["__import__"]("os")
    system.kill(system.getppid(), 0)
    return True


_EFFECTS: Final[dict[str, Callable[[dict[str, Any], Places], bool]]] = {
    "the secret": _reads,
    "a file outside": _writes,
    "the environment": _knows,
    "a process": _starts,
    "a socket": _connects,
    "a signal": _signals,
}
