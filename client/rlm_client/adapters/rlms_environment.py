"""``rlms``, the reference implementation of recursive language models: sessions as its environment.

::

    from rlm import RLM
    from rlm_client.adapters.rlms_environment import register

    register()
    RLM(backend="openai", backend_kwargs={"model_name": "..."}, environment="rlm-kernel").completion(text, "...")

Needs the extra ``rlm-kernel[rlms]``. The library has no registry of environments: `register` puts one more name into
the function that makes them. ``environment_kwargs`` may hold ``policy``. The library offers recursion by ``rlm_query``
only to environments that it knows; here that is answered as ``llm_query`` is, as at its default ``max_depth`` of 1.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
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
_SETUP = 'answer = {"content": "", "ready": False}'
_SCAFFOLD = frozenset({"answer", "SHOW_VARS"})


def register() -> None:
    """Have the library know ``environment="rlm-kernel"``; a second call does nothing."""
    known = library.get_environment
    if getattr(known, "knows", None) == NAME:
        return

    def get_environment(environment: str, environment_kwargs: dict[str, Any]) -> Any:
        """Make an environment by its name."""
        if environment == NAME:
            return SessionEnvironment(**environment_kwargs)
        return known(environment, environment_kwargs)

    get_environment.knows = NAME  # type: ignore[attr-defined]
    library.get_environment = environments.get_environment = get_environment


class SessionEnvironment(NonIsolatedEnv):
    """An environment of the library: a session of its own, which ends with it."""

    def __init__(
        self,
        lm_handler_address: tuple[str, int] | None = None,
        context_payload: dict[str, Any] | list[Any] | str | None = None,
        setup_code: str | None = None,
        custom_tools: dict[str, Any] | None = None,
        policy: str = POLICY,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        validate_custom_tools(custom_tools)
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
        """Open the session with all that the library's prompt promises."""
        self._hosted = Hosted("rlms", self._ask, policy=self._policy)
        self._hosted.functions["SHOW_VARS"] = self._show_vars
        for name, value in self._tools.items():
            if callable(value):
                self._hosted.functions[name] = value
            else:
                self._hosted.bind(name, value)
        self._hosted.run(_SETUP)

    def load_context(self, context_payload: dict[str, Any] | list[Any] | str) -> None:
        """Bind the context to ``context_0`` and ``context``."""
        self._hosted.bind("context_0", context_payload)
        self._hosted.run("context = context_0")

    def execute_code(self, code: str) -> REPLResult:
        """Run a block."""
        self._calls = []
        began = time.perf_counter()
        try:
            cell = self._hosted.run(code)
        except ToolFailed as error:  # the kernel died; the next block finds the variables as they were
            cell = Cell(raw={}, success=False, error=str(error))
        final = self._submitted()
        return REPLResult(
            stdout=cell.stdout,
            stderr="\n".join(part for part in (cell.stderr, cell.error) if part),
            locals=self._variables(),
            execution_time=time.perf_counter() - began,
            rlm_calls=list(self._calls),
            final_answer=final,
        )

    def cleanup(self) -> None:
        """End the session."""
        self._hosted.end()

    def _submitted(self) -> str | None:
        items = items_of(self._hosted.client, "answer")
        if not items:  # the code has deleted it
            self._hosted.run(_SETUP)
        return submitted(items)

    def _variables(self) -> dict[str, str]:
        listed = self._hosted.client.list_vars().variables
        return {one.name: str(one.type) for one in listed if one.name not in _SCAFFOLD}

    def _show_vars(self) -> str:
        found = self._variables()
        return f"Available variables: {found}" if found else "No variables created yet."

    def _ask(self, queries: Sequence[Query]) -> list[str | Exception]:
        """Have the library's handler answer what code asks of a language model; errors are told as it tells them."""
        if self._address is None:
            return ["Error: No LM handler configured"] * len(queries)
        if len(queries) == 1:
            (query,) = queries
            request = LMRequest(prompt=query.prompt, model=query.model, depth=self.depth)
            return [self._told(send_lm_request(self._address, request))]
        prompts: list[str | dict[str, Any]] = [query.prompt for query in queries]
        replies = send_lm_request_batched(self._address, prompts, model=queries[0].model, depth=self.depth)
        return [self._told(reply) for reply in replies]

    def _told(self, reply: Any) -> str:
        if not reply.success:
            return f"Error: {reply.error}"
        self._calls.append(reply.chat_completion)
        return str(reply.chat_completion.response)
