"""`RLM`: a model answers a question about a text that is too long to read, working in a separate session."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from anyio.from_thread import start_blocking_portal

from rlm_client.client import Client
from rlm_client.models.interface import Model
from rlm_client.models.router import open_models
from rlm_client.rlm.budget import Budget, RunLimits
from rlm_client.rlm.inputs import StrPath, load
from rlm_client.rlm.loop import Event, Loop, Solution, Watch, why
from rlm_client.rlm.trajectory import as_json_lines
from rlm_client.rlm.workspace import ClientWorkspace
from rlm_ipc.errors import CallerError, KernelError

__all__ = ["RLM"]

POLICY = "recursive"


class RLM:
    """A recursive language model: the loop of a model, code and queries, with a configured or given model.

    ``model`` names a configured model (None: the default one), or is an object with the method ``complete`` of
    `rlm_client.models.interface.Model`. ``sub_model`` names the one that answers the queries of code (None: the same).
    ``session`` names a session to work in, which is kept; without it, each question gets a new one under
    ``policy``. ``watch`` is called with each `Event`. Every turn of a run is written to the file ``trajectory`` as
    JSON lines, however the run ends.
    """

    def __init__(
        self,
        model: Model | str | None = None,
        *,
        sub_model: str | None = None,
        limits: RunLimits | None = None,
        policy: StrPath = POLICY,
        session: str | None = None,
        watch: Watch | None = None,
        trajectory: StrPath | None = None,
    ) -> None:
        self._model = model
        self._sub_model = sub_model
        self._limits = limits or RunLimits()
        self._policy = policy
        self._session = session
        self._watch = watch
        self._trajectory = None if trajectory is None else Path(trajectory)

    def completion(self, question: str, context: object = None, *, paths: StrPath | Sequence[StrPath] = ()) -> Solution:
        """Answer a question about ``context`` (a text, a path, or data that JSON can hold), or the files of ``paths``.

        Raises:
            RunBudgetExceeded: a limit is reached before there is an answer.
            ModelError: no model is configured, or it gives no answer.
            ToolFailed: the data cannot be loaded.
            CallerError: the trajectory cannot be written, or the context is a str that names a file.
        """
        try:
            return _finished(self._run(question, context, paths))
        except KernelError as error:
            raise _alone(error) from None

    async def acompletion(
        self, question: str, context: object = None, *, paths: StrPath | Sequence[StrPath] = ()
    ) -> Solution:
        """Like `completion`, for the caller's event loop."""
        try:
            return await self._run(question, context, paths)
        except KernelError as error:
            raise _alone(error) from None

    async def _run(self, question: str, context: object, paths: StrPath | Sequence[StrPath]) -> Solution:
        session = self._session or f"rlm-{secrets.token_hex(4)}"
        if self._trajectory is not None:
            _write(self._trajectory, "", "a")  # fail before anything is spent if the file cannot be written
        async with AsyncExitStack() as stack:
            name, model = await self._opened(stack, session)
            client = stack.enter_context(Client(session, policy=self._policy))
            workspace = ClientWorkspace(client, session, own=self._session is None)
            if self._session is None:
                stack.push_async_callback(workspace.end)
            variables = await asyncio.to_thread(load, client, context, paths)
            loop = Loop(
                workspace, model, Budget(self._limits), root_model=name, sub_model=self._sub_model, watch=self._watch
            )
            try:
                solution = await loop.solve(question, variables)
            except BaseException as error:
                self._keep(loop.stopped(question, why(error)))
                raise
            self._keep(solution)
            return solution

    def _keep(self, solution: Solution) -> None:
        if self._trajectory is not None:
            _write(self._trajectory, as_json_lines(solution))

    async def _opened(self, stack: AsyncExitStack, session: str) -> tuple[str | None, Model]:
        """Return the model and its name."""
        if self._model is None or isinstance(self._model, str):
            watch = self._watch
            on_retry = None if watch is None else lambda said: watch(Event("retry", session, 0, 0, said))
            return self._model, await stack.enter_async_context(open_models(on_retry))
        return None, self._model


def _alone(error: KernelError) -> KernelError:
    """Return an error without its traceback: its message is enough, and ``__context__`` has the cause."""
    return error.with_traceback(None)


def _finished(run: Coroutine[object, object, Solution]) -> Solution:
    """Wait for a run; in a notebook, whose own loop is blocked then, on another loop."""
    if not _loop_runs():
        return asyncio.run(run)
    with start_blocking_portal() as portal:
        running = portal.start_task_soon(_awaited, run)
        try:
            return running.result()
        except BaseException:
            running.cancel()  # an interrupt ends the run, too, not only the wait for it
            raise


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _awaited(run: Coroutine[object, object, Solution]) -> Solution:
    return await run


def _write(path: Path, text: str, mode: str = "w") -> None:
    try:
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise CallerError(f"the trajectory {path} cannot be written: {error.strerror}; name another file") from error
