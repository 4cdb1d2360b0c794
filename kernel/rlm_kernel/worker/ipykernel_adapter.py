"""ipykernel's `IPythonKernel` without sockets, threads, debugger or subshells, and with the wall in every handler."""

from __future__ import annotations

import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

from ipykernel.ipkernel import IPythonKernel
from ipykernel.jsonutil import json_clean
from traitlets import Any as AnyTrait
from traitlets import List

from rlm_ipc.framing import Message
from rlm_ipc.messages import JsonObject
from rlm_ipc.signals import IGNORE, set_handler
from rlm_ipc.worker_protocol import RunCell
from rlm_kernel.worker.cell_compiler import CellRefused, GuardedCompiler
from rlm_kernel.worker.displayhook import short_prompt
from rlm_kernel.worker.event_loop import ended_by_interrupts
from rlm_kernel.worker.history import chosen_cells, plain_result
from rlm_kernel.worker.introspection import completions, inspection
from rlm_kernel.worker.shell import GuardedShell, showable
from rlm_kernel.worker.stdio import LinkSession
from rlm_kernel.worker.traceback import name_of, text_of

CLOSED_REQUESTS = """
    debug_request create_subshell_request delete_subshell_request list_subshell_request apply_request abort_request
    clear_request usage_request shutdown_request interrupt_request
""".split()
NO_REQUEST: JsonObject = {"header": {}, "parent_header": {}, "metadata": {}, "content": {}}
END_OF_INPUT = "\x04"


class SandboxedKernel(IPythonKernel):
    """The kernel of one session.

    ``receive_input`` waits for the next answer on the stdin channel. ``on_abort`` asks the supervisor, which holds the
    queue, to abort the requests in it. ``hold`` gathers messages into one write. ``new_task`` creates a task that keeps
    the context variables of cells. While the kernel is ``deaf``, cells take no interrupts. Once ``interrupted`` is set,
    the next cell ends as it starts.
    """

    shell_stream = AnyTrait()
    control_stream = AnyTrait()
    stdin_channel = AnyTrait()
    debugger_class = AnyTrait()
    shell_class = GuardedShell
    compiler_class = GuardedCompiler
    # ipykernel sleeps half a millisecond before each reply, so that the output of its stream threads gets out first.
    # There are no such threads here: `TextStream` has sent every write before the cell ends.
    _execute_sleep = 0.0
    # Traits that nobody observes, and that each cell reads or sets many times: a plain attribute costs a tenth.
    shell: Any = None
    session: Any = None
    _allow_stdin = False
    _sys_raw_input = _save_getpass = None
    _supports_kernel_subshells = False  # each would be a thread, and a process with threads cannot be forked safely
    implementation = "rlm-kernel"
    help_links = List([{"text": "Python Reference", "url": f"https://docs.python.org/3.{sys.version_info[1]}"}])

    def __init__(
        self,
        *,
        receive_input: Callable[[], Message | None],
        on_abort: Callable[[], None],
        hold: Callable[[bool], None],
        new_task: Callable[..., Any],
        session: LinkSession,
        **options: Any,
    ) -> None:
        self.session = session
        self.receive_input, self.on_abort, self.hold, self.new_task = receive_input, on_abort, hold, new_task
        super().__init__(**options)
        self.in_cell = self.deaf = self.interrupted = self._begins = False
        self._has_parent = True
        """Whether a Jupyter client's request has run since the last cell that came through the supervisor."""
        # ipykernel 7 asks for the thread of the shell channel when a cell uses ``await``, and fails on None. Here there
        # is only one thread.
        self.shell_channel_thread = types.SimpleNamespace(parent_thread=threading.main_thread())
        # A debugger and subshells are threads. ``apply_request`` unpickles and runs code past the cell compiler. And
        # only the supervisor may interrupt or end a worker.
        for handlers in (self.shell_handlers, self.control_handlers):
            for name in CLOSED_REQUESTS:
                handlers.pop(name, None)

    @property
    def banner(self) -> str:
        """What a console says first. The kernel sends it before it knows its policy."""
        python = ".".join(map(str, sys.version_info[:3]))
        return (
            f"rlm-kernel, Python {python}\n"
            "Code runs under the policy of its session. `name?` explains a name, %lsmagic lists the magics,\n"
            "`rlm-kernel policy show NAME` in a terminal says what a policy allows.\n"
        )

    @property
    def walled(self) -> bool:
        """True while the language wall is active."""
        return self.shell.wall is not None

    async def dispatch(self, stream: Any, frames: Sequence[bytes]) -> None:
        """Handle one raw request of the shell or control channel: busy, reply, idle."""
        identities, rest = self.session.feed_identities(list(frames))
        try:
            message = self.session.deserialize(rest)
        except Exception:
            self.log.exception("a request that cannot be read was dropped")
            return
        self.set_parent(identities, message, channel="shell")
        self._has_parent = True
        self._publish_status("busy", "shell")
        kind = message["header"]["msg_type"]
        handler = self.shell_handlers.get(kind) or self.control_handlers.get(kind)
        if handler is not None:
            bracket = interruptible() if kind != "execute_request" else nullcontext()
            await self._guarded(bracket, handler, stream, identities, message)
        self._publish_status("idle", "shell")

    async def _guarded(self, bracket: AbstractContextManager[None], handler: Callable[..., Any], *request: Any) -> None:
        try:
            with bracket:
                result = handler(*request)
                if result is not None:
                    await result
        except KeyboardInterrupt:
            ignore_interrupts()
            self.log.warning("interrupted outside a cell")
        except BaseException as error:
            self.log.error("a request failed", exc_info=showable(error))

    async def execute_request(self, stream: Any, ident: Any, parent: Any) -> None:
        """Run a cell and reply, even when an interrupt arrives just outside the user's code."""
        try:
            await super().execute_request(stream, ident, parent)
        except KeyboardInterrupt as error:
            self.session.send(stream, "execute_reply", self._interrupted(error), parent, ident=ident)

    async def run_cell(self, cell: RunCell) -> JsonObject:
        """Run a cell that came through the supervisor and return its reply. Its output leaves without envelopes."""
        session = self.session
        if self._has_parent:  # the header of a client's request must not become the parent of this cell's output
            self.set_parent([], NO_REQUEST)
            self._has_parent = False
        session.bare = True
        try:
            if cell.watched:
                self._publish_execute_input(cell.code, {}, self.execution_count)
            reply = await self.do_execute(cell.code, False, cell.store_history)
        except KeyboardInterrupt as error:
            reply = self._interrupted(error)
        finally:
            session.bare = False
        return reply

    async def do_execute(
        self,
        code: str,
        silent: bool,
        store_history: bool = True,
        user_expressions: dict[str, str] | None = None,
        allow_stdin: bool = False,
        *,
        cell_meta: JsonObject | None = None,
        cell_id: str | None = None,
    ) -> JsonObject:
        """Run a cell as ipykernel does, without the lookups that it repeats for each cell.

        Output leaves while the cell runs, unbuffered, because it must survive a crash of the process.
        """
        shell = self.shell
        shell._last_traceback = None
        shell.by_person = self.walled and not self.session.bare
        if self.walled:
            self._allow_stdin = allow_stdin
        else:
            self._forward_input(allow_stdin)
        self.hold(False)
        self.in_cell = True
        try:
            try:
                set_handler(signal.SIGINT, IGNORE if self.deaf else self._note_interrupt)
                self._begins = True
                # Otherwise a warning would be shown once in a session. A name there may compare by its own code.
                with shell.user_code(), suppress(Exception):
                    shell.user_ns.pop("__warningregistry__", None)
                result = await self._run_cell(code, silent, store_history, cell_id)
                self.begin_code()
                reply = self._reply(result, user_expressions)
            finally:
                ignore_interrupts()
        except KeyboardInterrupt as error:
            reply = self._interrupted(error)
        except RecursionError:
            reply = self._failed(CellRefused("the cell is nested too deeply; split it into smaller expressions"))
        except BaseException as error:  # a cell can leave objects behind that raise in IPython's own code
            reply = self._failed(error)
        finally:
            self.in_cell = self._begins = False
            self.hold(True)
            if not self.walled:
                self._restore_input()
            self._allow_stdin = False
        return reply

    def _note_interrupt(self, *_signal: object) -> None:
        """Keep an interrupt for the cell that is starting: IPython's hooks and finalisers would swallow the exception.

        They can also run code of the session, which the second interrupt ends.
        """
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True

    def begin_code(self) -> None:
        """Let interrupts reach the session's code, which runs from here on; an earlier interrupt takes effect first."""
        if not self._begins:
            return
        if not self.deaf:
            # CPython's own handler is written in C: unlike ours, it adds no frame to the user's traceback.
            set_handler(signal.SIGINT, signal.default_int_handler)
        self.check_interrupted()
        self._begins = False

    def check_interrupted(self) -> None:
        """Raise KeyboardInterrupt if one was kept."""
        if self._begins and self.interrupted:
            raise KeyboardInterrupt

    def _interrupted(self, error: KeyboardInterrupt) -> JsonObject:
        """Build the reply for an interrupt that arrived just outside the user's code. A second one is ignored."""
        ignore_interrupts()
        self.hold(True)
        return self._failed(error)

    def _failed(self, error: BaseException) -> JsonObject:
        """Build the reply for an error in the machinery around the user's code."""
        name, said = name_of(type(error)), text_of(error)
        lines = [f"{name}: {said}" if said else name]
        # A plain class with the same name: IPython would ask the original for more than its name and message.
        plain = type(name, (Exception,), {})(said)
        self.shell._showtraceback(type(plain), plain, lines)
        content = {"status": "error", "ename": name, "evalue": said, "traceback": lines}
        return {**content, "execution_count": self.shell.execution_count - 1, "user_expressions": {}, "payload": []}

    async def _run_cell(self, code: str, silent: bool, store_history: bool, cell_id: str | None) -> Any:
        shell, problem, result = self.shell, None, None
        try:
            transformed = shell.transform_cell(code)
        except Exception:
            transformed, problem = code, sys.exc_info()
        options = {"transformed_cell": transformed, "preprocessing_exc_tuple": problem}
        try:
            # `should_run_async` compiles the cell a second time, and Python's compiler can fail.
            waits = may_wait(code) and shell.should_run_async(code, **options)
            if waits:
                self.begin_code()
            cell = shell.run_cell_async(code, store_history, silent, cell_id=cell_id, **options)
            if waits:
                future = self.new_task(cell)
                with ended_by_interrupts(future):
                    result = await future
            else:
                result = await cell
            return result
        finally:
            with shell.user_code():  # matplotlib draws here, and its figures call functions that the cell gave them
                shell.events.trigger("post_execute")
                if not silent:
                    shell.events.trigger("post_run_cell", result)

    def _reply(self, result: Any, user_expressions: dict[str, str] | None) -> JsonObject:
        shell = self.shell
        reply: JsonObject = {"status": "ok", "execution_count": shell.execution_count - 1, "user_expressions": {}}
        if shell.leaves(result.error_in_exec):
            shell.payload_manager.write_payload({"source": "ask_exit", "keepkernel": True})
        elif result.success:
            if user_expressions:
                reply["user_expressions"] = shell.user_expressions(user_expressions)
        else:
            error = result.error_before_exec or result.error_in_exec
            result.error_before_exec = result.error_in_exec = None  # a frame of its traceback has the result: a cycle
            with shell.user_code():
                reply |= {"status": "error", "ename": name_of(type(error)), "evalue": text_of(error)}
            reply["traceback"] = shell._last_traceback or []
        reply["payload"] = shell.payload_manager.read_payload()
        if reply["payload"]:
            shell.payload_manager.clear_payload()
        return reply

    def _abort_queues(self, subshell_id: str | None = None) -> None:
        self.on_abort()

    def _input_request(self, prompt: str, ident: Any, parent: Any, password: bool = False) -> str:
        """Ask on the stdin channel and wait in this frame for the answer."""
        content = json_clean({"prompt": short_prompt(prompt), "password": password})
        self.session.send(self.stdin_channel, "input_request", content, parent, ident=ident)
        message: Message | None = self.receive_input()
        if message is None:
            os._exit(0)  # the supervisor has gone, and an exception could be caught by the cell
        _, rest = self.session.feed_identities(list(message.parts))
        value = self.session.deserialize(rest)["content"].get("value", "")
        if value == END_OF_INPUT:
            raise EOFError
        return str(value)

    # -- requests that stock IPython answers by running code

    def do_complete(self, code: str, cursor_pos: int | None) -> Any:
        """Return completions; under a wall, those that can be found without running code of the session."""
        if not self.walled:
            return super().do_complete(code, cursor_pos)
        end = len(code) if cursor_pos is None else cursor_pos
        start, matches = end, list[completions.Match]()
        with self._answered_anyway("completion"), self.shell.user_code():
            start, matches = completions.complete(self.shell.surroundings, code, end)
        types = completions.experimental(matches, start, end)
        found = {"cursor_start": start, "cursor_end": end, "matches": [match.text for match in matches]}
        return found | {"metadata": {"_jupyter_types_experimental": types}, "status": "ok"}

    def do_inspect(
        self, code: str, cursor_pos: int, detail_level: int = 0, omit_sections: Sequence[str] = ()
    ) -> JsonObject:
        """Describe a name or a called function; under a wall, as far as possible without running its code."""
        if not self.walled:
            return dict(super().do_inspect(code, cursor_pos, detail_level, omit_sections))
        text = ""
        with self._answered_anyway("inspection"), self.shell.user_code():
            text = inspection.inspected(self.shell.surroundings.scope, code, cursor_pos, source=detail_level > 0)
        return {"status": "ok", "data": {"text/plain": text} if text else {}, "metadata": {}, "found": bool(text)}

    @contextmanager
    def _answered_anyway(self, what: str) -> Iterator[None]:
        """Reply that nothing is known if we fail: a front end waits for its reply."""
        try:
            yield
        except Exception as error:
            self.log.error("a %s failed", what, exc_info=showable(error))

    async def do_history(
        self,
        hist_access_type: str,
        output: bool,
        raw: bool,
        session: int | None = None,
        start: int | None = 0,
        stop: int | None = None,
        n: int | None = None,
        pattern: str | None = None,
        unique: bool = False,
    ) -> JsonObject:
        """Return the cells of this session, from memory: no history database outlives or crosses a session."""
        manager = self.shell.history_manager
        inputs = manager.input_hist_raw if raw else manager.input_hist_parsed
        cells = [(0, number, text) for number, text in enumerate(inputs) if number and text]
        chosen = chosen_cells(cells, hist_access_type, start or 0, stop, n, pattern, unique)
        if output:
            results = self.shell.user_ns.get("Out")
            outputs = results if type(results) is dict else {}
            return {"status": "ok", "history": [(s, i, (t, plain_result(outputs.get(i)))) for s, i, t in chosen]}
        return {"status": "ok", "history": chosen}


def may_wait(code: str) -> bool:
    """Return whether a cell may be asynchronous: without one of these words it cannot."""
    return "await" in code or "async" in code


@contextmanager
def interruptible(handler: object = signal.default_int_handler) -> Iterator[None]:
    """Return the bracket in which ``handler`` handles SIGINT."""
    set_handler(signal.SIGINT, handler)
    try:
        yield
    finally:
        ignore_interrupts()


def ignore_interrupts() -> None:
    """End the bracket, even one that an interrupt left open by arriving while it opened or closed."""
    set_handler(signal.SIGINT, IGNORE)
