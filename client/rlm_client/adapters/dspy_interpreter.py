"""``dspy``: sessions as the interpreter of `dspy.RLM` and of everything else that takes an ``interpreter_factory``.

::

    import dspy
    from rlm_client.adapters.dspy_interpreter import SessionInterpreter

    dspy.configure(lm=..., interpreter_factory=SessionInterpreter)
    dspy.RLM("context, question -> answer")(context=text, question="...")

Needs the extra ``rlm-kernel[dspy]``. Each interpreter is a separate session, which ends with it.
"""

from __future__ import annotations

import ast
import asyncio
import contextvars
import inspect
import keyword
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from dspy.primitives.code_interpreter import CodeExecutionError, CodeInterpreterError, FinalOutput

from rlm_client.adapters.hosted import POLICY, Hosted, as_plain
from rlm_client.results import Cell, Query
from rlm_ipc.errors import CallerError, KernelError

__all__ = ["SessionInterpreter"]

_LLM, _BATCH, _SUBMIT = "llm_query", "llm_query_batched", "SUBMIT"
_SYNTAX = re.compile(r"^(?:SyntaxError|IndentationError|TabError)\b", re.MULTILINE)


class _Submitted(Exception):
    """Ends the code that has submitted an answer."""


class SessionInterpreter:
    """An interpreter for dspy; the class itself is the factory. ``policy`` names the policy of its session.

    To create an interpreter yourself, pass ``tools`` and ``output_fields``, and use it in ``with``.
    """

    execution_instructions = (
        "CPython in a sandboxed Jupyter kernel: most of the standard library, no network, no other programs. "
        "Variables stay from one execution to the next; `eval`, `exec` and `globals` are not available."
    )

    def __init__(
        self,
        policy: str = POLICY,
        *,
        tools: Mapping[str, Callable[..., Any]] | None = None,
        output_fields: list[dict[str, Any]] | None = None,
    ) -> None:
        self.tools: dict[str, Callable[..., Any]] = dict(tools or {})
        self.output_fields = output_fields
        self._policy = policy
        self._hosted: Hosted | None = None
        self._final: FinalOutput | None = None
        self._runs = self._ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def start(self) -> None:
        """Open the session; the first execution does it, too."""
        self._session()

    def execute(self, code: str, variables: dict[str, Any] | None = None) -> Any:
        """Run code and return what it printed, or the FinalOutput that it has submitted.

        Raises:
            CodeExecutionError: the code raised, or is not permitted.
            SyntaxError: it is not Python.
            CodeInterpreterError: the session cannot be used, or a variable cannot be set in it.
        """
        if self._runs:  # the session waits for the tool, and the tool would wait for the session
            raise CodeInterpreterError("a tool cannot execute recursively: its caller's interpreter waits for it")
        self._runs = True
        try:
            return self._executed(code, variables or {})
        finally:
            self._runs = False

    __call__ = execute

    def _executed(self, code: str, variables: Mapping[str, object]) -> Any:
        hosted, self._final = self._session(), None
        tools = {name: tool for name, tool in self.tools.items() if name not in {_LLM, _BATCH}}
        hosted.functions = {name: _by_keyword(tool) for name, tool in tools.items()}
        hosted.functions[_SUBMIT] = self._submit
        try:
            for name, value in variables.items():
                _bind(hosted, name, value)
            cell = hosted.run(code)
        except CallerError as error:
            raise CodeExecutionError(str(error)) from error
        except KernelError as error:
            raise CodeInterpreterError(str(error)) from error
        return self._outcome(cell)

    def shutdown(self) -> None:
        """End the session, and with it this interpreter."""
        hosted, self._hosted, self._ended = self._hosted, None, True
        if hosted is not None:
            hosted.end()

    def _session(self) -> Hosted:
        if self._ended:
            raise CodeInterpreterError("this interpreter's session has ended; make another interpreter")
        if self._hosted is None:
            self._hosted = Hosted("dspy", self._ask, policy=self._policy)
        return self._hosted

    def _submit(self, *args: Any, **kwargs: Any) -> None:
        names = [field["name"] for field in self.output_fields or [{"name": "output"}]]
        self._final = FinalOutput(_by_name(names, args, kwargs))
        raise _Submitted("the answer was submitted, the code ends here")

    def _outcome(self, cell: Cell) -> Any:
        return self._final if self._final is not None else _printed(cell)

    def _ask(self, queries: Sequence[Query]) -> Sequence[str | Exception]:
        """Let the tools of dspy answer the queries of code."""
        prompts = [query.prompt for query in queries]
        try:
            if len(prompts) > 1 and _BATCH in self.tools:
                return [str(answer) for answer in self.tools[_BATCH](prompts=prompts)]
            if _LLM in self.tools:
                return [str(self.tools[_LLM](prompt=prompt)) for prompt in prompts]
        except Exception as error:
            return [error] * len(prompts)
        return [CallerError("there is no tool llm_query; register one in `tools`")] * len(prompts)


def _bind(hosted: Hosted, name: str, value: object) -> None:
    if not name.isidentifier() or keyword.iskeyword(name):
        raise CodeInterpreterError(f"Invalid variable name: {name!r}")
    try:
        hosted.bind(name, value)
    except CallerError as error:  # other code would not help
        raise CodeInterpreterError(str(error)) from error


def _by_name(names: Sequence[str], args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
    """Bind the arguments of a call; raises TypeError with Python's own message."""
    if len(args) > len(names):
        raise TypeError(f"SUBMIT() takes {len(names)} positional arguments but {len(args)} were given")
    given = dict(zip(names, args, strict=False))
    if wrong := [name for name in kwargs if name in given or name not in names]:
        why = "multiple values for" if wrong[0] in given else "an unexpected keyword"
        raise TypeError(f"SUBMIT() got {why} argument {wrong[0]!r}")
    given |= kwargs
    if missing := [name for name in names if name not in given]:
        plural = "s" if len(missing) > 1 else ""
        raise TypeError(
            f"SUBMIT() missing {len(missing)} required positional argument{plural}: {', '.join(map(repr, missing))}"
        )
    return given


def _by_keyword(tool: Callable[..., Any]) -> Callable[..., Any]:
    """Call a tool of dspy: it takes only keyword arguments, whatever its signature says, and may be asynchronous."""

    def call(*args: Any, **kwargs: Any) -> Any:
        found = tool(**dict(inspect.signature(tool).bind_partial(*args).arguments), **kwargs)
        return _awaited(found) if inspect.isawaitable(found) else found

    return call


def _awaited(found: Awaitable[Any]) -> Any:
    """Wait in another thread, because a loop may be running in this one."""

    async def wait() -> Any:
        return await found

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(contextvars.copy_context().run, asyncio.run, wait()).result()


def _printed(cell: Cell) -> Any:
    if cell.error is not None:
        if _SYNTAX.search(cell.error):
            raise SyntaxError(f"Invalid Python syntax:\n{cell.error}")
        raise CodeExecutionError(cell.error)
    text = cell.stdout + cell.stderr
    if text or cell.result is None:
        return f"{text}{cell.result or ''}" or None
    try:
        return as_plain(ast.literal_eval(cell.result))  # like dspy's own interpreter, return a plain value unchanged
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return cell.result
