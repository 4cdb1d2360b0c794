"""The language wall inside IPython: every path from a message to byte code leads through one compiler.

IPython's ``ast_transformers`` are not suited to a wall: if one raises, IPython warns, unregisters it and runs the cell.
So `GuardedShell.run_cell_async`, which every cell passes, is reimplemented: it compiles the *whole* cell before its
first statement runs, and refuses it as a whole. `GuardedShell.run_code` runs only code objects that the wall has made.
Magics, ``!``, ``?``, ``user_expressions``, completion and inspection are disabled or reimplemented.

A cell's path is also shorter than IPython's, which takes half as long again. Each call writes to reference counts: on
IPython's path a cell writes to a fifth more pages, all of which are copied if a checkpoint shares them.

With ``wall = None`` (policy ``language.wall: off``) this is plain IPython.
"""

from __future__ import annotations

import builtins
import inspect
import sys
import types
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ipykernel.jsonutil import json_clean
from ipykernel.zmqshell import ZMQInteractiveShell
from IPython.core import interactiveshell
from IPython.core.error import UsageError
from IPython.core.interactiveshell import ExecutionInfo, ExecutionResult
from traitlets import Type

from rlm_ipc.messages import JsonObject
from rlm_kernel.worker.advice import advice
from rlm_kernel.worker.cell_compiler import REFUSALS, CellRefused
from rlm_kernel.worker.displayhook import QuickDisplayHook, QuickFormatter
from rlm_kernel.worker.history import SessionHistory
from rlm_kernel.worker.introspection.surroundings import SessionSurroundings
from rlm_kernel.worker.magics.actions import Actions
from rlm_kernel.worker.magics.rewriting import OFFERED
from rlm_kernel.worker.magics.syntax import translated
from rlm_kernel.worker.traceback import UNSAID, name_of, render, text_of
from rlm_sandbox.language_wall.audit_hook import trusted
from rlm_sandbox.language_wall.wall import has_left
from rlm_sandbox.namespaces import Namespace
from rlm_sandbox.os_wall import rlimits

if TYPE_CHECKING:
    from rlm_sandbox.language_wall.wall import LanguageWall

SPARE_BYTES = 16 * 1024
"""Memory that is left when code has taken all: raising the limit needs some, too."""
HIDDEN_NAMES = ("__builtin__", "__loader__", "__spec__", "__session__")
POWERS = ("get_ipython", "exit", "quit", "open")
"""Objects that IPython gives code under names that are free for code's own variables."""
SIDE_CHANNELS = """
    ev ex safe_execfile safe_execfile_ipy safe_run_module run_line_magic run_cell_magic system system_raw system_piped
    getoutput mktempfile enable_gui enable_matplotlib
""".split()


def _nothing_to_bind(_namespace: Namespace) -> None:
    """Do nothing: there is no session yet."""


def _connect_info(_line: str) -> None:
    """Say how to connect another front end. IPython would look for a connection file, which only the supervisor has."""
    sys.stdout.write(
        "To open this session in another front end, choose the kernel `RLM: SESSION` there. In a terminal,\n"
        "`rlm-kernel open SESSION` opens it in JupyterLab, and `rlm-kernel sessions` lists the sessions.\n"
    )


class GuardedShell(ZMQInteractiveShell):
    """IPython's shell with the wall at its narrowest point."""

    wall: LanguageWall | None = None
    _rebind: Callable[[Namespace], None] = staticmethod(_nothing_to_bind)
    by_person = False
    """Whether the cell that runs came from a front end."""
    displayhook_class = Type(QuickDisplayHook)
    # IPython's traits that each cell reads or sets and that nobody observes: a plain attribute costs a tenth.
    execution_count = 1
    last_execution_succeeded = True
    last_execution_result = None
    kernel: Any = None
    history_manager: Any = None
    display_formatter: Any = None
    payload_manager: Any = None

    def __init__(self, *, kernel: Any, **options: Any) -> None:
        self.kernel = kernel
        super().__init__(**options)
        # IPython's own, which `SandboxedKernel.do_execute` does itself, or for which a session has no use.
        for listeners in self.events.callbacks.values():
            listeners.clear()

    def init_display_formatter(self) -> None:
        """Set up the formatter that creates representations of values."""
        self.display_formatter = QuickFormatter(parent=self)
        self.configurables.append(self.display_formatter)

    def init_history(self) -> None:
        """Set up the list of the cells that have run."""
        self.history_manager = SessionHistory(shell=self, parent=self)
        self.configurables.append(self.history_manager)

    def init_magics(self) -> None:
        """Set up IPython's magics, which sessions without a wall have."""
        super().init_magics()
        self.register_magic_function(_connect_info, magic_name="connect_info")

    def raise_wall(self, wall: LanguageWall | None, rebind: Callable[[Namespace], None]) -> None:
        """Put the wall up for the rest of this process's life; None if the policy has no wall.

        ``rebind`` rebinds loaded contexts whose names code has deleted, before each statement. A wall comes down only
        in a forked copy that was made for the developer's own code.
        """
        self._rebind = rebind
        before, self.wall = self.wall, wall
        self.compile.wall = wall
        if before is None and wall is not None:
            self.kernel._forward_input()  # once, and not for each cell: nothing else than the session's code asks
        if before is not None and wall is None:
            self.kernel._restore_input()
            # The disabled methods are instance attributes: without them the class's own show again.
            for name in SIDE_CHANNELS:
                self.__dict__.pop(name, None)
            self.user_ns.update(__builtins__=builtins, get_ipython=self.get_ipython)
        if wall is not None:
            warnings.filterwarnings("ignore", message="IProgress not found")  # there are no widgets
            # IPython sets these up and takes them down again for each cell.
            self.builtin_trap.__enter__()
            self.display_trap.__enter__()
            for name in SIDE_CHANNELS:
                setattr(self, name, self._closed)
            self._scrub()

    def _scrub(self) -> None:
        """Remove IPython's own powers from the namespace and plant the restricted builtins again."""
        assert self.wall is not None
        # Before every statement, not once: IPython puts ``get_ipython`` and the real ``builtins`` module back whenever
        # it resets the namespace, and code may have deleted ``__builtins__``, in place of which CPython puts its own.
        for names in (self.user_ns, self.user_ns_hidden):
            for name in HIDDEN_NAMES:
                names.pop(name, None)
            for name in POWERS:
                if name in names and self._gave(names[name]):
                    del names[name]
        self.wall.prepare(self.user_ns)

    def _gave(self, value: Any) -> bool:
        """Return whether IPython itself put a value into the namespace, and not code of the session."""
        own = type(value) is types.MethodType and value.__self__ is self
        return own or value is self.exiter or value is interactiveshell._modified_open

    # -- text → syntax tree → code object → run

    def transform_cell(self, raw_cell: str) -> str:
        """Return the cell's text, dedented, with its magics, ``!`` and ``?`` as calls that the compiler replaces."""
        if self.wall is None:
            return str(super().transform_cell(raw_cell))
        text = inspect.cleandoc("\n" + raw_cell) if raw_cell[:1].isspace() else raw_cell
        text = text if text.endswith("\n") else text + "\n"
        python = translated(text)
        self.compile.written = text if python != text else ""
        return python

    async def run_cell_async(
        self,
        raw_cell: str,
        store_history: bool = False,
        silent: bool = False,
        shell_futures: bool = True,
        *,
        transformed_cell: str | None = None,
        preprocessing_exc_tuple: Any = None,
        cell_id: str | None = None,
        cell_meta: Any = None,
    ) -> ExecutionResult:
        """Run a cell; under a wall without what IPython does for a terminal, a database and exports."""
        if self.wall is None:
            options: JsonObject = {"cell_id": cell_id, "cell_meta": cell_meta, "transformed_cell": transformed_cell}
            options["preprocessing_exc_tuple"] = preprocessing_exc_tuple
            return await super().run_cell_async(raw_cell, store_history, silent, shell_futures, **options)
        cell = transformed_cell or ""
        info = ExecutionInfo(raw_cell, store_history, silent, shell_futures, cell_id, cell_meta, cell)
        result = ExecutionResult(info)
        if raw_cell and not raw_cell.isspace():
            number = result.execution_count = self.execution_count
            self.events.trigger("pre_execute")
            if not silent:
                self.events.trigger("pre_run_cell", info)
            if store_history and not silent:
                self.execution_count += 1
                self.history_manager.store_inputs(number, cell, raw_cell)
            try:
                if preprocessing_exc_tuple is not None:
                    raise preprocessing_exc_tuple[1]
                self.magics.forget()
                codes = self.compile.compiled(cell, number, self.kernel.check_interrupted, shows=not silent)
            except REFUSALS as error:
                codes, result.error_before_exec = [], error
                self.showtraceback()
            self.displayhook.exec_result = result
            try:
                for code in codes:
                    if await self.run_code(code, result, async_=code.co_flags & inspect.CO_COROUTINE != 0):
                        break
            except BaseException as error:  # an interrupt just outside the code, or code that the wall did not make
                result.error_before_exec = error
                self.showtraceback()
            finally:
                self.displayhook.exec_result = None
        self.last_execution_succeeded, self.last_execution_result = result.success, result
        return result

    async def run_code(self, code_obj: types.CodeType, result: Any = None, *, async_: bool = False) -> bool:
        """Run a code object, under a wall only one that the wall made. Return whether it has failed."""
        if self.wall is None:
            self._rebind(self.user_ns)
            self.kernel.begin_code()
            return bool(await super().run_code(code_obj, result, async_=async_))
        if not self.wall.made(code_obj):
            raise CellRefused("code that did not come from the policy's compiler is not run")
        names = self.user_ns
        # Inside the bracket, because both calls below may drop the last reference to an object of the session, whose
        # finaliser then runs.
        with self.wall.user():
            self._scrub()
            self._rebind(names)
            self.kernel.begin_code()
            try:
                with _MemoryKeptBack():
                    if async_:
                        await eval(code_obj, names, names)
                    else:
                        exec(code_obj, names, names)
            except BaseException as error:
                self.showtraceback()
                if issubclass(type(error), MemoryError):
                    self.displayhook.forget()  # otherwise the `del` that the error recommends may free nothing
                if result is not None:
                    result.error_in_exec = showable(error)
                return True
        return False

    def user_code(self) -> AbstractContextManager[None]:
        """Return the bracket for user code outside a cell: an error's ``__str__``, an object's ``__repr__``."""
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

    # -- ways around the wall

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
        """Show figures in this form from now on. matplotlib is loaded only when a figure is made, not for this."""
        self.config.InlineBackend.figure_formats = {form}
        if (inline := sys.modules.get("matplotlib_inline.config")) is not None:
            inline.InlineBackend.instance(parent=self).figure_formats = {form}

    def enable_gui(self, gui: Any = None) -> None:
        """Accept ``%matplotlib inline``, which needs no event loop of windows; refuse others: nobody sees windows."""
        if gui is not None:
            raise UsageError("a session shows figures as pictures and opens no windows: write `%matplotlib inline`")

    # -- errors

    def showtraceback(self, exc_tuple: Any = None, *args: Any, **options: Any) -> None:
        """Publish the current error, or a given one, with only the frames of the user's code."""
        _, error, _ = exc_tuple or sys.exc_info()
        assert error is not None
        if exc_tuple is not None and self.kernel.session.bare:
            # A value could not be shown, and the cell continues. An agent gets no error message but its cell's own.
            sys.stderr.write("\n".join([*render(error), ""]))
            return
        if self.displayhook.showing and (result := self.displayhook.exec_result) is not None:
            result.error_in_exec = showable(error)  # a notebook's cell whose value cannot be shown has failed
        if self.wall is None:
            super().showtraceback(exc_tuple, *args, **options)
            return
        if self.leaves(error):
            return
        presentable = showable(error)
        lines = render(error, for_people=self.by_person, advice=advice(error, self.wall.policy))
        self._showtraceback(type(presentable), presentable, lines)

    def leaves(self, error: BaseException | None) -> bool:
        """Return whether a person left the cell by ``exit``: that is not a failure."""
        return self.by_person and has_left(error)


# By this name libraries (rich, plotly, ...) recognize that their output goes to a notebook.
GuardedShell.__name__ = ZMQInteractiveShell.__name__


class _MemoryKeptBack:
    """A ``with`` block in which code of the session runs: it cannot use the memory reserved for our own work."""

    @trusted
    def __enter__(self) -> None:
        self.spare: bytes | None = bytes(SPARE_BYTES)
        rlimits.keep_memory_back()

    @trusted
    def __exit__(self, *_: object) -> None:
        self.spare = None
        rlimits.release_memory()


def showable(error: BaseException) -> BaseException:
    """Return the error itself, or a plain stand-in if asking for its message or its name could run hostile code.

    A ``__str__`` may raise, and a metaclass may answer in place of ``__name__``.
    """
    said = text_of(error)
    if said is not UNSAID and type(type(error)) is type:
        return error
    stand_in: BaseException = type(name_of(type(error)), (Exception,), {})(said)
    return stand_in.with_traceback(error.__traceback__)
