"""The language wall inside IPython: every way from a message to byte code leads through one compiler.

IPython's ``ast_transformers`` are no place for a wall: if one raises, IPython warns, unregisters it and runs the cell.
So the two methods that every cell passes are guarded instead. `GuardedShell.transform_ast` compiles the *whole* cell
before its first statement runs, and refuses it with `InputRejected`, the one exception that IPython does not swallow.
`GuardedShell.run_code` runs only code objects that the wall has made. Magics, ``!``, ``?``, ``user_expressions``,
completion and inspection are closed or made again.

With ``wall = None`` (policy ``language.wall: off``) this is plain IPython.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import inspect
import os
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ipykernel.compiler import XCachingCompiler
from ipykernel.jsonutil import json_clean
from ipykernel.zmqshell import ZMQInteractiveShell
from IPython.core.error import InputRejected, UsageError
from traitlets import Type

from rlm_ipc import processes
from rlm_ipc.messages import JsonObject
from rlm_kernel.worker.displayhook import QuickDisplayHook, QuickFormatter
from rlm_kernel.worker.file_advice import advice
from rlm_kernel.worker.introspection.surroundings import SessionSurroundings
from rlm_kernel.worker.magics.actions import Actions
from rlm_kernel.worker.magics.rewriting import MARKS, OFFERED, MagicRefused, rewritten
from rlm_kernel.worker.magics.syntax import translated
from rlm_kernel.worker.traceback import CELL_PREFIX, UNSAID, name_of, render, text_of
from rlm_sandbox.namespaces import Namespace

if TYPE_CHECKING:
    from rlm_sandbox.language_wall.wall import LanguageWall

AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
HIDDEN_NAMES = ("get_ipython", "exit", "quit", "open", "__builtin__", "__loader__", "__spec__", "__session__")
SIDE_CHANNELS = [
    "ev",
    "ex",
    "safe_execfile",
    "safe_execfile_ipy",
    "safe_run_module",
    "run_line_magic",
    "run_cell_magic",
    "system",
    "system_raw",
    "system_piped",
    "getoutput",
    "mktempfile",
    "enable_gui",
    "enable_matplotlib",
]


class CellRefused(InputRejected, SyntaxError):
    """The policy refuses the cell; none of it ran."""

    def __str__(self) -> str:
        """The reason; the traceback says where."""
        return str(self.msg)


class CellSyntaxError(InputRejected, SyntaxError):
    """The cell is not valid Python; none of it ran. Clients see the name ``SyntaxError``."""


CellSyntaxError.__name__ = "SyntaxError"


class GuardedCompiler(XCachingCompiler):
    """IPython's compiler. It hands out the code objects that the wall made from this cell's statements."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Drops PyCF_ALLOW_INCOMPLETE_INPUT, a flag for prompts. With it CPython calls an unclosed bracket "incomplete
        # input" instead of a syntax error, and since 3.13 raises another class for it.
        self.reset_compiler_flags()
        self.wall: LanguageWall | None = None
        self.prepared: dict[int, types.CodeType] = {}
        self.cell_name = f"{CELL_PREFIX}0>"
        self.written = ""
        """The text of the cell, if it has magics."""

    def get_code_name(self, raw_code: str, code: str, number: int) -> str:
        """The file name of a cell: its number, as the user sees it."""
        self.cell_name = f"{CELL_PREFIX}{number}>"
        return self.cell_name

    def cache(self, transformed_code: str, number: int = 0, raw_code: str | None = None) -> str:
        """Keep the cell's lines for tracebacks, as they were written and not as its magics were translated."""
        return str(super().cache(self.written or transformed_code, number, raw_code))

    def __call__(self, source: Any, filename: str, symbol: str, *args: Any, **options: Any) -> types.CodeType:
        """Compile as ``compile`` does; under a wall, return only code that the wall has checked."""
        if self.wall is None:
            code: types.CodeType = super().__call__(source, filename, symbol, *args, **options)
            return code
        # IPython asks for one statement at a time, in a new tree each time. `transform_ast` has compiled them all
        # already, so the statement's identity finds its code. What it did not prepare is compiled under the wall now.
        made = self.prepared.pop(id(source.body[0]), None) if getattr(source, "body", None) else None
        return made if made is not None else self.wall.compile(source, filename, symbol, self.flags | AWAIT)


def _nothing_to_bind(_namespace: Namespace) -> None:
    """There is no session yet."""


class GuardedShell(ZMQInteractiveShell):
    """IPython's shell with the wall at its waist."""

    wall: LanguageWall | None = None
    _rebind: Callable[[Namespace], None] = staticmethod(_nothing_to_bind)
    by_person = False
    """Whether the cell that runs came from a front end."""
    _has_no_magics = False
    refused_cells = 0
    """How many cells the compiler has refused under the policy."""
    displayhook_class = Type(QuickDisplayHook)
    # Traits of IPython's that change with each cell and that nobody observes: a plain attribute costs a tenth.
    execution_count = 1
    last_execution_succeeded = True
    last_execution_result = None

    def init_display_formatter(self) -> None:
        """Set up the formatter that makes representations of values."""
        self.display_formatter = QuickFormatter(parent=self)
        self.configurables.append(self.display_formatter)

    def raise_wall(self, wall: LanguageWall | None, rebind: Callable[[Namespace], None]) -> None:
        """Put the wall up for the rest of this process's life; None if the policy has no wall.

        ``rebind`` binds loaded contexts again whose names code has deleted, before each statement. A wall comes down
        only in a forked copy that was made for the developer's own code.
        """
        self._rebind = rebind
        fallen, self.wall = self.wall is not None and wall is None, wall
        self.compile.wall = wall
        if fallen:
            # The closed methods are instance attributes: without them the class's own show again.
            for name in SIDE_CHANNELS:
                self.__dict__.pop(name, None)
            self.user_ns.update(__builtins__=builtins, get_ipython=self.get_ipython, open=builtins.open)
        if wall is not None:
            for advice_for_others in ("To exit: use", "IProgress not found"):  # no prompts, no widgets
                warnings.filterwarnings("ignore", message=advice_for_others)
            # A transformer would run on the tree after the check, or instead of it.
            self.ast_transformers.clear()
            for name in SIDE_CHANNELS:
                setattr(self, name, self._closed)
            self._scrub()

    def _scrub(self) -> None:
        """Take IPython's own powers out of the namespace and plant the restricted builtins again."""
        assert self.wall is not None
        # Before every statement, not once: IPython puts ``get_ipython`` and the real ``builtins`` module back whenever
        # it resets the namespace, and code may have deleted ``__builtins__``, in place of which CPython puts its own.
        for names in (self.user_ns, self.user_ns_hidden):
            for name in HIDDEN_NAMES:
                names.pop(name, None)
        self.wall.prepare(self.user_ns)

    # -- text → syntax tree → code object → run

    def transform_cell(self, raw_cell: str) -> str:
        """Return the cell's text, dedented, its magics, ``!`` and ``?`` as calls that `transform_ast` replaces."""
        if self.wall is None:
            return str(super().transform_cell(raw_cell))
        self._has_no_magics = False
        text = inspect.cleandoc("\n" + raw_cell) if raw_cell[:1].isspace() else raw_cell
        text = text if text.endswith("\n") else text + "\n"
        python = translated(text)
        self.compile.written = text if python != text else ""
        self._has_no_magics = python.isascii() and not any(word in python for word in MARKS)
        return python

    def transform_ast(self, node: ast.Module) -> ast.Module:
        """Compile the whole cell before any of it runs; `CellRefused` if the policy refuses a part of it."""
        if self.wall is None:
            return super().transform_ast(node)  # type: ignore[no-any-return]
        if self.wall.changed() is not None:
            os._exit(processes.EXIT_TAMPERED)  # a wall that stands in name only is worse than none
        self.wall.begin_cell()
        self.compile.prepared.clear()
        self.magics.forget()
        name = self.compile.cell_name
        try:
            node = node if self._has_no_magics else rewritten(node)
            for statement, mode in _units(node):
                self.kernel.check_interrupted()
                wrapped = ast.Interactive([statement]) if mode == "single" else ast.Module([statement], [])
                self.compile.prepared[id(statement)] = self.wall.compile(
                    wrapped, name, mode, self.compile.flags | AWAIT
                )
                self.compile.flags |= _future_flags(statement)
        except RecursionError:
            raise CellRefused("the cell is nested too deeply; split it into smaller statements") from None
        except SyntaxError as error:
            refused = _refused(error, name)
            self.refused_cells += isinstance(refused, CellRefused) and not isinstance(error, MagicRefused)
            raise refused from None
        return node

    async def run_code(self, code_obj: types.CodeType, result: Any = None, *, async_: bool = False) -> bool:
        """Run a code object, under a wall only one that the wall made."""
        if self.wall is None:
            self._rebind(self.user_ns)
            self.kernel.begin_code()
            return bool(await super().run_code(code_obj, result, async_=async_))
        if not self.wall.made(code_obj):
            raise CellRefused("code that did not come from the policy's compiler is not run")
        # Inside the bracket, because both calls below may drop the last reference to an object of the session, whose
        # finaliser then runs.
        with self.wall.user():
            self._scrub()
            self._rebind(self.user_ns)
            self.kernel.begin_code()
            failed = bool(await super().run_code(code_obj, result, async_=async_))
            if failed and result is not None:
                result.error_in_exec = showable(result.error_in_exec)
        return failed

    def user_code(self) -> AbstractContextManager[None]:
        """The bracket in which user code may run outside a cell: an error's ``__str__``, an object's ``__repr__``."""
        return nullcontext() if self.wall is None else self.wall.user()

    def user_expressions(self, expressions: dict[str, str]) -> JsonObject:
        """Evaluate a client's expressions under the same wall as cells."""
        if self.wall is None:
            return super().user_expressions(expressions)  # type: ignore[no-any-return]
        return {str(name): self._expression(str(text)) for name, text in expressions.items()}

    def _expression(self, text: str) -> JsonObject:
        assert self.wall is not None
        try:
            code = self.wall.compile(text.strip(), "<expression>", "eval")
            with self.wall.user():
                self._scrub()
                return dict(json_clean(self._format_user_obj(eval(code, self.user_ns, self.user_ns))))
        except BaseException as error:
            shown = {"status": "error", "ename": name_of(type(error)), "evalue": text_of(error)}
            return {**shown, "traceback": render(error)}

    # -- ways round the waist

    def _closed(self, *_args: Any, **_options: Any) -> Any:
        raise UsageError("magics, shell commands and code files are not available in this session")

    @property
    def surroundings(self) -> SessionSurroundings:
        """What completion and inspection may look at."""
        assert self.wall is not None
        hidden = (*HIDDEN_NAMES, *(name for name in self.user_ns_hidden if name.startswith("_")))
        return SessionSurroundings(self.wall, self.user_ns, hidden, OFFERED)

    @cached_property
    def magics(self) -> Actions:
        """What magics do when their cell runs."""
        return Actions(self.user_ns, self.user_ns_hidden, lambda: self.surroundings.scope, self._show_figures_as)

    def _show_figures_as(self, form: str) -> None:
        """Show figures in this form from now on. matplotlib is loaded when a figure is made, and not for this."""
        self.config.InlineBackend.figure_formats = {form}
        if (inline := sys.modules.get("matplotlib_inline.config")) is not None:
            inline.InlineBackend.instance(parent=self).figure_formats = {form}

    # -- errors

    def showtraceback(self, exc_tuple: Any = None, *args: Any, **options: Any) -> None:
        """Publish the current error with the frames of the user's code only."""
        if self.wall is None:
            super().showtraceback(exc_tuple, *args, **options)
            return
        _, error, _ = exc_tuple or sys.exc_info()
        assert error is not None
        if self.leaves(error):
            return
        shown = showable(error)
        advised = advice(error, self.wall.policy.files.read, self.wall.policy.files.write)
        self._showtraceback(type(shown), shown, render(error, for_people=self.by_person, advice=advised))

    def leaves(self, error: BaseException | None) -> bool:
        """Whether a person has left the cell by ``exit``: nothing has gone wrong then."""
        return self.by_person and type(error) is SystemExit and error.code is None

    def _format_exception_for_storage(self, exception: BaseException, *args: Any, **options: Any) -> JsonObject:
        """What IPython keeps of an error for ``%tb``. Under the wall the error is not evaluated a second time."""
        if self.wall is None:
            return dict(super()._format_exception_for_storage(exception, *args, **options))
        # The stock method calls the error's ``__str__`` again, outside the bracket for user code.
        return {"ename": name_of(type(exception)), "evalue": "", "traceback": self._last_traceback or []}

    def showsyntaxerror(self, *args: Any, **options: Any) -> None:
        """Publish a syntax error of the cell."""
        if self.wall is None:
            super().showsyntaxerror(*args, **options)
        else:
            self.showtraceback()


def showable(error: BaseException) -> BaseException:
    """The error itself, or a plain stand-in if asking it for its message or its name could run hostile code.

    A ``__str__`` may raise, and a metaclass may answer in place of ``__name__``.
    """
    said = text_of(error)
    if said is not UNSAID and type(type(error)) is type:
        return error
    stand_in: BaseException = type(name_of(type(error)), (Exception,), {})(said)
    return stand_in.with_traceback(error.__traceback__)


def _future_flags(statement: ast.stmt) -> int:
    """The compiler flags that a statement asks for, for all that comes after it: ``from __future__ import ...``."""
    if not isinstance(statement, ast.ImportFrom) or statement.module != "__future__" or statement.level:
        return 0
    flags = 0
    for name in statement.names:
        flags |= getattr(__future__, name.name).compiler_flag
    return flags


def _units(tree: ast.Module) -> Iterator[tuple[ast.stmt, str]]:
    """Pair each statement with the mode in which IPython runs it: a final expression shows its value."""
    *body, last = tree.body or [ast.Pass()]
    yield from ((statement, "exec") for statement in body)
    if tree.body:
        yield last, "single" if isinstance(last, ast.Expr) else "exec"


def _refused(error: SyntaxError, cell: str) -> SyntaxError:
    kind = CellSyntaxError if type(error) is SyntaxError else CellRefused
    return kind(error.msg, (cell, error.lineno, error.offset, error.text))
