"""``rlms``, the reference implementation of recursive language models: sessions as its environment.

::

    from rlm import RLM
    from rlm_client.adapters.rlms_environment import register

    register()
    RLM(backend="openai", backend_kwargs={"model_name": "..."}, environment="rlm-kernel").completion(text, "...")

Needs the extra ``rlm-kernel[rlms]``. The library has no registry of environments: `register` puts one more name into
the function that makes them. ``environment_kwargs`` may hold ``policy``. Recursion (``max_depth`` above 1), compaction
and ``persistent`` it gives only to environments whose names it knows: ``register("local")`` makes "local" a session.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import rlm.core.rlm as library
from rlm import environments
from rlm.core.comms_utils import LMRequest, send_lm_request, send_lm_request_batched
from rlm.core.types import REPLResult, RLMChatCompletion
from rlm.environments.base_env import NonIsolatedEnv, extract_tool_value, validate_custom_tools

from rlm_client.adapters.hosted import POLICY, Hosted
from rlm_client.results import Cell, Query
from rlm_client.rlm.replies import submitted
from rlm_client.rlm.workspace import items_of
from rlm_ipc.errors import ToolFailed

__all__ = ["NAME", "SessionEnvironment", "register"]

NAME = "rlm-kernel"
Message = dict[str, Any]
Payload = Message | list[Any] | str
"""The context of a completion."""
_SETUP = 'answer = {"content": "", "ready": False}'
_SCAFFOLD = frozenset({"answer", "SHOW_VARS", "rlm_query", "rlm_query_batched"})
_QUERIES = ("llm_query", "llm_query_batched", "rlm_query", "rlm_query_batched")


def register(name: str = NAME) -> None:
    """Let the library create a session for ``environment=name``; a second call does nothing."""
    known = library.get_environment
    if name in (names := getattr(known, "sessions", ())):
        return

    def get_environment(environment: str, environment_kwargs: dict[str, Any]) -> Any:
        """Create an environment by its name."""
        if environment == name:
            return SessionEnvironment(**environment_kwargs)
        return known(environment, environment_kwargs)

    get_environment.sessions = (*names, name)  # type: ignore[attr-defined]
    library.get_environment = environments.get_environment = get_environment


class SessionEnvironment(NonIsolatedEnv):
    """An environment for the library: a separate session, which ends with it."""

    def __init__(
        self,
        lm_handler_address: tuple[str, int] | None = None,
        context_payload: Payload | None = None,
        setup_code: str | None = None,
        custom_tools: dict[str, Any] | None = None,
        custom_sub_tools: dict[str, Any] | None = None,
        policy: str = POLICY,
        subcall_fn: Callable[[str, str | None], RLMChatCompletion] | None = None,
        compaction: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        validate_custom_tools(custom_tools)
        self._subcall = subcall_fn
        self._compacted: list[Any] | None = [] if compaction else None
        self._contexts = self._histories = 0
        self._known: dict[str, str] = {}
        self.custom_tools, self.custom_sub_tools = custom_tools or {}, custom_sub_tools or custom_tools or {}
        self._address = lm_handler_address
        self._tools = {name: extract_tool_value(entry) for name, entry in (custom_tools or {}).items()}
        self._policy = policy
        self._calls: list[RLMChatCompletion] = []
        self.setup()
        if context_payload is not None:
            self.load_context(context_payload)
        if setup_code:
            self.execute_code(setup_code)

    def setup(self) -> None:
        """Open the session with everything that the library's prompt promises."""
        self._hosted = Hosted("rlms", self._ask, policy=self._policy)
        self._hosted.functions["SHOW_VARS"] = self._show_vars
        if self._subcall is not None:
            self._hosted.functions |= {"rlm_query": self._recursive, "rlm_query_batched": self._recursive_batch}
        for name, value in self._tools.items():
            if callable(value):
                self._hosted.functions[name] = value
            else:
                self._hosted.bind(name, value)
        self._hosted.run(_SETUP)
        if self._compacted is not None:
            self._hosted.bind("history", list(self._compacted))

    def load_context(self, context_payload: Payload) -> None:
        """Bind the context to ``context_0`` and ``context``."""
        self.add_context(context_payload, 0)

    def add_context(self, context_payload: Payload, context_index: int | None = None) -> int:
        """Bind another context, or the one with that number. Return its number."""
        index = self._contexts if context_index is None else context_index
        self._hosted.bind(f"context_{index}", context_payload)
        self._contexts = max(self._contexts, index + 1)
        if index == 0:
            self._hosted.run("context = context_0")
        return index

    def get_context_count(self) -> int:
        """Return how many contexts there are."""
        return self._contexts

    def add_history(self, message_history: Sequence[Message], history_index: int | None = None) -> int:
        """Bind the messages of a completion. Return the number of that history."""
        index = self._histories if history_index is None else history_index
        self._hosted.bind(f"history_{index}", copy.deepcopy(message_history))
        self._histories = max(self._histories, index + 1)
        if index == 0 and self._compacted is None:
            self._hosted.run("history = history_0")
        return index

    def get_history_count(self) -> int:
        """Return how many histories there are."""
        return self._histories

    def append_compaction_entry(self, entry: Sequence[Message] | Message) -> None:
        """Add the messages that the library cut from its conversation to ``history``, if it compacts."""
        if self._compacted is not None:
            self._compacted.append(copy.deepcopy(entry))
            self._hosted.bind("history", list(self._compacted))

    def update_handler_address(self, address: tuple[str, int]) -> None:
        """Use another handler from now on: each completion has its own."""
        self._address = address

    def execute_code(self, code: str) -> REPLResult:
        """Run a block."""
        self._calls = []
        began = time.perf_counter()
        try:
            cell = self._hosted.run(code)
        except ToolFailed as error:  # the kernel died; the next block finds the earlier variables
            cell = Cell(raw={}, success=False, error=str(error))
        final = self._submitted()
        variables = self._known = self._variables()
        self._restore({*cell.defined_variables}, {*variables})
        return REPLResult(
            stdout=cell.stdout,
            stderr="\n".join(part for part in (cell.stderr, cell.error) if part),
            locals=variables,
            execution_time=time.perf_counter() - began,
            rlm_calls=list(self._calls),
            final_answer=final,
        )

    def cleanup(self) -> None:
        """End the session."""
        self._hosted.end()

    def _restore(self, bound: set[str], there: set[str]) -> None:
        """Restore the library's names after a block: its prompt promises them to the next one."""
        self._hosted.define_again(bound)
        lost = [name for name in _QUERIES if name in bound and name not in self._hosted.functions]
        code = [f"del {name}" for name in lost]  # the session's own names are below
        for name, first, count in (("context", "context_0", self._contexts), ("history", "history_0", self._histories)):
            if first in there and count and (name in bound or name not in there):
                code.append(f"{name} = {first}")
        if code:
            self._hosted.run("\n".join(code))

    def _submitted(self) -> str | None:
        items = items_of(self._hosted.client, "answer")
        if not items:  # the code has deleted it
            self._hosted.run(_SETUP)
        if (found := submitted(items)) is not None:
            self._hosted.run(_SETUP)  # a later completion would use it as its own
        return found

    def _variables(self) -> dict[str, str]:
        listed = self._hosted.client.list_vars().variables
        return {one.name: str(one.type) for one in listed if one.name not in _SCAFFOLD}

    def _show_vars(self) -> str:
        found = self._known  # a running cell cannot be asked
        return (
            f"Available variables: {found}"
            if found
            else "No variables created yet. Use ```repl``` blocks to create some."
        )

    def _recursive(self, prompt: str, model: str | None = None) -> str:
        return self._recursive_batch([prompt], model)[0]

    def _recursive_batch(self, prompts: Sequence[str], model: str | None = None) -> list[str]:
        """Let the library start a run for each prompt; errors are reported in its way."""
        with ThreadPoolExecutor(self.max_concurrent_subcalls) as pool:
            done = [pool.submit(self._child, prompt, model) for prompt in prompts]
            return [self._kept(one.result()) for one in done]

    def _child(self, prompt: str, model: str | None) -> RLMChatCompletion | str:
        assert self._subcall is not None
        try:
            return self._subcall(prompt, model)
        except Exception as error:
            return f"Error: RLM query failed - {error}"

    def _kept(self, found: RLMChatCompletion | str) -> str:
        if isinstance(found, str):
            return found
        self._calls.append(found)
        return str(found.response)

    def _ask(self, queries: Sequence[Query]) -> list[str | Exception]:
        """Let the library's handler answer the queries of code; errors are reported in its way."""
        if self._address is None:
            return ["Error: No LM handler configured"] * len(queries)
        try:
            return self._answers(self._address, queries)
        except Exception as error:
            return [f"Error: LM query failed - {error}"] * len(queries)

    def _answers(self, address: tuple[str, int], queries: Sequence[Query]) -> list[str | Exception]:
        if len(queries) == 1:
            (query,) = queries
            request = LMRequest(prompt=query.prompt, model=query.model, depth=self.depth)
            return [self._told(send_lm_request(address, request))]
        prompts: list[str | dict[str, Any]] = [query.prompt for query in queries]
        replies = send_lm_request_batched(address, prompts, model=queries[0].model, depth=self.depth)
        return [self._told(reply) for reply in replies]

    def _told(self, reply: Any) -> str:
        if not reply.success:
            return f"Error: {reply.error}"
        self._calls.append(reply.chat_completion)
        return str(reply.chat_completion.response)
