"""Magics in a cell's syntax tree: each is replaced by its meaning, or refused with an explanation.

The functions that they call are builtins whose names no code can spell, such as ``%time`` (`actions`). A statement that
a magic times becomes a statement of the cell, so the wall compiles it with the rest.
"""

from __future__ import annotations

import ast
import shlex
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Final

from rlm_ipc.late_dataclasses import dataclass
from rlm_kernel.worker import parsing
from rlm_kernel.worker.magics import refusals
from rlm_kernel.worker.magics.syntax import translated

_CALLS: Final = ("run_line_magic", "run_cell_magic", "system", "getoutput", "show_usage")
_SHOWN: Final = {"html": "HTML", "HTML": "HTML", "markdown": "Markdown"}
_FIGURES: Final = ("InlineBackend.figure_format", "InlineBackend.figure_formats")
FORMS: Final = {"png": "png", "retina": "retina", "png2x": "retina", "jpeg": "jpeg", "jpg": "jpeg"}
"""The forms in which ``%config`` may show figures, by the names that code writes."""
_COMPLETION: Final = tuple(f"{of}.{trait}" for of in ("Completer", "IPCompleter") for trait in ("use_jedi", "greedy"))
"""What VS Code and many notebooks set first. Our own completion uses no jedi and follows expressions."""
_LEAVING: Final = ("exit", "quit")
"""Names that are commands if they stand alone, unless code gives them another value."""
MARKS: Final = ("get_ipython", *_LEAVING)
"""Every cell that has something to rewrite contains one of these in its Python text, if that text is plain ASCII."""
RESULT: Final = "_%"
"""Where the result of a timing goes if nobody keeps it."""


class MagicRefused(SyntaxError):
    """A magic that is not available in sessions."""


@dataclass(slots=True)
class Timing:
    """The options of ``%timeit``."""

    n: int = 0
    r: int = 7
    p: int = 3
    q: bool = False
    o: bool = False
    c: bool = False
    t: bool = False


@dataclass(frozen=True, slots=True)
class Magic:
    """A magic in a cell. ``body`` is the text below a cell magic, ``line`` where it begins."""

    name: str
    rest: str
    body: str | None
    node: ast.expr

    def refused(self, why: str = "") -> MagicRefused:
        """Return the error that says why the magic is refused."""
        said = why or refusals.sentence(self.name, cell=self.body is not None)
        return MagicRefused(said, (None, self.node.lineno, self.node.col_offset + 1, None))


def rewritten(tree: ast.Module) -> ast.Module:
    """Return a cell's tree with its magics replaced; raises MagicRefused for one that is not available."""
    return ast.fix_missing_locations(_Rewriter().visit(tree))  # type: ignore[no-any-return]


class _Rewriter(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> Any:
        if isinstance(node.value, ast.Name) and node.value.id in _LEAVING:
            return ast.copy_location(ast.Expr(ast.copy_location(_call("%leave", node.value), node)), node)
        if (magic := _magic(node.value)) is None:
            return self.generic_visit(node)
        return self._statements(magic, node, None)

    def visit_Assign(self, node: ast.Assign) -> Any:
        if (magic := _magic(node.value)) is None:
            return self.generic_visit(node)
        return self._statements(magic, node, node.targets)

    def visit_Call(self, node: ast.Call) -> Any:
        if (magic := _magic(node)) is not None:
            raise magic.refused(refusals.within(magic.name))
        return self.generic_visit(node)

    def _statements(self, magic: Magic, node: ast.stmt, targets: list[ast.expr] | None) -> list[ast.stmt]:
        maker = _MAKERS.get(magic.name)
        if maker is None:
            raise magic.refused()
        made = maker(magic, targets)
        for statement in made:
            _move(statement, node)
        return made


def _move(statement: ast.stmt, where: ast.stmt) -> None:
    """Give a statement without a position the position of the magic."""
    for inner in ast.walk(statement):
        if not hasattr(inner, "lineno") and "lineno" in getattr(inner, "_attributes", ()):
            ast.copy_location(inner, where)


def _magic(node: ast.expr) -> Magic | None:
    """Return the magic that a call stands for; None if it is not IPython's own call with strings."""
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Call(func=ast.Name(id="get_ipython"), args=[]), attr=kind),
            args=given,
            keywords=[],
        ) if kind in _CALLS:
            texts = [part.value for part in given if isinstance(part, ast.Constant) and isinstance(part.value, str)]
            if kind == "show_usage" and not given:  # a bare `?`
                return Magic("quickref", "", None, node)
            if len(texts) != len(given) or not texts:
                return None
            if kind in ("system", "getoutput"):
                return Magic("!", texts[0], None, node)
            return Magic(texts[0], texts[1] if len(texts) > 1 else "", texts[2] if len(texts) > 2 else None, node)
    return None


# -- what each magic means


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _call(name: str, *given: ast.expr) -> ast.Call:
    return ast.Call(_name(name), list(given), [])


def _parsed(magic: Magic, text: str, lines_below: int) -> list[ast.stmt]:
    """Return the statements of a magic, each with its line in the cell."""
    try:
        tree = parsing.module(translated(text))
    except SyntaxError as error:
        error.lineno = (error.lineno or 1) + magic.node.lineno - 1 + lines_below
        raise
    ast.increment_lineno(tree, magic.node.lineno - 1 + lines_below)
    return list(_Rewriter().visit(tree).body)


def _code(magic: Magic, rest: str) -> list[ast.stmt]:
    return [
        *(_parsed(magic, rest.strip(), 0) if rest.strip() else []),
        *(_parsed(magic, magic.body, 1) if magic.body else []),
    ]


def _bound(targets: list[ast.expr] | None, value: ast.expr) -> ast.stmt:
    return ast.Expr(value) if targets is None else ast.Assign(targets, value)


def _time(magic: Magic, targets: list[ast.expr] | None) -> list[ast.stmt]:
    rest = magic.rest.removeprefix("--no-raise-error").strip()
    body = _code(magic, rest)
    if not body:
        raise magic.refused("`%time` measures a statement: write it behind the magic, or below `%%time`")
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    if targets is not None and last is None:
        raise magic.refused("`%time` gives the value of an expression; this is a statement")
    if not isinstance(last, ast.Expr):
        return [_together([ast.Expr(_call("%clock")), *body, ast.Expr(_call("%time"))])]
    if not body:
        return [_bound(targets, _call("%time", _call("%clock"), last.value))]
    return [
        _together([ast.Expr(_call("%clock")), *body]),
        _bound(targets, _call("%time", ast.Constant(None), last.value)),
    ]


def _together(body: list[ast.stmt]) -> ast.stmt:
    """Return the statements as one: a shell works between two statements, which must not be measured."""
    return ast.If(ast.Constant(True), body, [])


def _timeit(magic: Magic, targets: list[ast.expr] | None) -> list[ast.stmt]:
    options, rest = _timing(magic)
    setup = _parsed(magic, rest, 0) if magic.body and rest else []
    body = _parsed(magic, magic.body, 1) if magic.body else _parsed(magic, rest, 0) if rest else []
    if not body:
        raise magic.refused("`%timeit` measures a statement: write it behind the magic, or below `%%timeit`")
    target = targets[0] if targets else None
    if targets and (len(targets) > 1 or not isinstance(target, ast.Name)):
        raise magic.refused("`%timeit -o` can be assigned to one name only")
    loop = ast.For(ast.Name("%round", ast.Store()), _name("%rounds"), body, [])
    begun = ast.Assign([ast.Name("%begun", ast.Store())], _call("%clock"))
    ended = ast.Return(ast.BinOp(_call("%clock"), ast.Sub(), _name("%begun")))
    parameters = ast.arguments([], [ast.arg("%rounds"), ast.arg("%clock")], None, [], [], None, [])
    arguments = [ast.Constant(getattr(options, field.name)) for field in fields(options)]
    inner = ast.FunctionDef(
        target.id if isinstance(target, ast.Name) else RESULT,
        parameters,
        [*setup, begun, loop, ended],
        [_call("%timeit", *arguments)],
    )
    return [inner]


def _timing(magic: Magic) -> tuple[Timing, str]:
    """Return the options of ``%timeit``, and the text after them."""
    options, rest = Timing(), magic.rest.strip()
    while rest.startswith("-"):
        word, _, rest = rest.partition(" ")
        letter, value = word[1:2], word[2:]
        if letter not in {field.name for field in fields(Timing)} or (value and letter not in "nrp"):
            raise magic.refused(
                f"`%timeit` has no option {word!r}; it has -n, -r and -p with a number, -q, -o, -t and -c"
            )
        if letter in "nrp":
            if not value:
                value, _, rest = rest.lstrip().partition(" ")
            if not value.isdecimal() or not 0 < int(value) <= 1_000_000_000:
                raise magic.refused(f"`%timeit -{letter}` takes a number of 1 or more, not {value!r}")
            setattr(options, letter, int(value))
        else:
            setattr(options, letter, True)
        rest = rest.lstrip()
    return options, rest


def _matplotlib(magic: Magic, targets: list[ast.expr] | None) -> list[ast.stmt]:
    if targets is not None or magic.rest.strip() not in ("inline", ""):
        raise magic.refused(refusals.of_figures(magic.rest.strip()))
    return [ast.Pass()]


def _config(magic: Magic, targets: list[ast.expr] | None) -> list[ast.stmt]:
    setting, _, text = magic.rest.partition("=")
    if targets is None and setting.strip() in _COMPLETION and text.strip() in ("True", "False"):
        return [ast.Pass()]
    if targets is not None or setting.strip() not in _FIGURES:
        raise magic.refused()
    try:
        value = ast.literal_eval(text.strip())
        [form] = [value] if isinstance(value, str) else value
        shown = FORMS[form]
    except (ValueError, TypeError, SyntaxError, KeyError):
        raise magic.refused(refusals.of_forms(text.strip(), FORMS)) from None
    return [ast.Expr(_call("%figures", ast.Constant(shown)))]


def _listing(magic: Magic, targets: list[ast.expr] | None) -> list[ast.stmt]:
    return [_bound(targets, _call(f"%{magic.name}", *map(ast.Constant, _words(magic))))]


def _words(magic: Magic) -> list[str]:
    try:
        return shlex.split(magic.rest)
    except ValueError as error:
        raise magic.refused(f"`%{magic.name}` does not understand {magic.rest!r}: {error}") from None


def _plain(magic: Magic, targets: list[ast.expr] | None) -> list[ast.stmt]:
    return [_bound(targets, _call(f"%{magic.name}"))]


def _details(magic: Magic, targets: list[ast.expr] | None) -> list[ast.stmt]:
    source = magic.name == "pinfo2"
    return [_bound(targets, _call("%pinfo", ast.Constant(magic.rest.strip()), ast.Constant(source)))]


def _shown(magic: Magic, targets: list[ast.expr] | None) -> list[ast.stmt]:
    if magic.body is None or targets is not None:
        raise magic.refused(f"`%%{magic.name}` stands in the first line of a cell, above the text that it shows")
    return [ast.Expr(_call("%show", ast.Constant(_SHOWN[magic.name]), ast.Constant(magic.body)))]


_MAKERS: Final[dict[str, Callable[[Magic, list[ast.expr] | None], list[ast.stmt]]]] = {
    "time": _time,
    "timeit": _timeit,
    "matplotlib": _matplotlib,
    "config": _config,
    "who": _listing,
    "whos": _listing,
    "who_ls": _listing,
    "pwd": _plain,
    "lsmagic": _plain,
    "quickref": _plain,
    "pinfo": _details,
    "pinfo2": _details,
    "pdoc": _details,
    **dict.fromkeys(_SHOWN, _shown),
}
NAMES: Final = tuple(sorted(name for name in _MAKERS if name not in {"pinfo", "pinfo2", "pdoc"} | _SHOWN.keys()))
CELL_NAMES: Final = ("time", "timeit", *sorted(_SHOWN))
OFFERED: Final = (*(f"%{name}" for name in NAMES), *(f"%%{name}" for name in CELL_NAMES))
