"""The reference implementation of recursive language models on our sessions, with a scripted model."""

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from model_endpoint import ModelEndpoint, Reply, code

pytest.importorskip("rlm", reason="rlms is not installed: `make test-adapters` installs it, with its 250 MB")

import rlm.core.rlm as library
from rlm import RLM, environments
from rlm.logger import RLMLogger

from rlm_client.adapters.rlms_environment import NAME, SessionEnvironment, register
from rlm_ipc.daemon_connection import DaemonConnection
from rlm_ipc.session_requests import ListSessions

pytestmark = [
    pytest.mark.usefixtures("daemon"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # the library leaves sockets open
]
SUBMIT = "answer['content'] = {}\nanswer['ready'] = True"


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """Have what the library left open found while its warnings are passed over."""
    yield
    gc.collect()


@pytest.fixture
def options(endpoint: ModelEndpoint) -> dict[str, Any]:
    """Return what makes an RLM with the endpoint as its model and sessions as its environment."""
    register()
    register()
    backend = {"model_name": "scripted", "base_url": endpoint.url, "api_key": "none"}
    return {"backend": "openai", "backend_kwargs": backend, "environment": NAME}


def test_the_reference_loop_works_in_a_session(endpoint: ModelEndpoint, options: dict[str, Any]) -> None:
    """Its prompt is true here: context, queries, a batch, a tool of the host, SHOW_VARS and the answer."""
    endpoint.script(
        code("print(len(context), type(context).__name__)"),
        code("hit = [l for l in context.splitlines() if 'needle' in l][0]", "word = llm_query('Which? ' + hit)"),
        Reply("silver"),
        code("print(rlm_query_batched(['a', 'b']), shout(word), SHOW_VARS())"),
        Reply("note"),
        Reply("note"),
        code(SUBMIT.format("shout(word)")),
    )
    rlm = RLM(**options, custom_tools={"shout": str.upper})
    found = rlm.completion("hay\n" * 50_000 + "a silver needle\n", root_prompt="Of what?")
    assert found.response == "SILVER"
    told = [asked.messages[-2]["content"] for asked in endpoint.requests if len(asked.messages) > 3]
    assert "200016 str" in told[0]
    assert "['note', 'note'] SILVER" in told[2]
    assert "'word'" in told[2]
    with DaemonConnection(ListSessions()) as control:
        assert [row for row in control.reply.sessions if row.session.startswith("rlms-")] == []


def test_data_errors_and_its_own_log(endpoint: ModelEndpoint, options: dict[str, Any], tmp_path: Path) -> None:
    """A list stays a list; an error is shown as it shows them; its log has the outputs and queries of our session."""
    endpoint.script(
        code("print(context[1]['a'])", "1 / 0"),
        code("del answer", "import socket"),
        code("print(llm_query('why'))", SUBMIT.format("'so'")),
        Reply("because"),
    )
    rlm = RLM(**options, logger=RLMLogger(log_dir=str(tmp_path)))
    assert rlm.completion([{"a": "first"}, {"a": "second"}]).response == "so"
    (log,) = tmp_path.glob("*.jsonl")
    _, first, second, third = [json.loads(line) for line in log.read_text().splitlines()]
    assert first["code_blocks"][0]["result"]["stdout"] == "second\n"
    assert "ZeroDivisionError" in first["code_blocks"][0]["result"]["stderr"]
    assert "ImportRefused" in second["code_blocks"][0]["result"]["stderr"]
    assert third["code_blocks"][0]["result"]["rlm_calls"][0]["response"] == "because"


@pytest.fixture
def environment() -> Iterator[SessionEnvironment]:
    """An environment of the library without its loop."""
    made = SessionEnvironment(context_payload="the first")
    yield made
    made.cleanup()


def test_names_of_the_library_outlive_what_a_block_does_to_them(environment: SessionEnvironment) -> None:
    """Its prompt promises them to every block; variables are listed as of the last one."""
    environment.execute_code("llm_query = SHOW_VARS = 5\ncontext = 'mine'\nmine = 1")
    found = environment.execute_code("print(context, callable(llm_query), SHOW_VARS())")
    assert found.stdout.startswith("the first True Available variables:")
    assert "'mine': 'int'" in found.stdout
    environment.execute_code("del context")
    assert environment.execute_code("print(context)").stdout == "the first\n"


def test_an_answer_is_given_once(environment: SessionEnvironment) -> None:
    """In a session that is used again, the next completion would take it for its own."""
    assert environment.execute_code(SUBMIT.format("'done'")).final_answer == "done"
    assert environment.execute_code("print(answer)").final_answer is None


def test_contexts_and_histories_are_counted(environment: SessionEnvironment) -> None:
    """As the library wants of environments that it uses again."""
    assert (environment.add_context("the second"), environment.get_context_count()) == (1, 2)
    assert (environment.add_history([{"role": "user", "content": "hi"}]), environment.get_history_count()) == (0, 1)
    code = "print(context_0, context_1, context, history[0]['content'], history is history_0)"
    assert environment.execute_code(code).stdout == "the first the second the first hi True\n"


def test_the_librarys_own_name_gets_what_it_gives_to_no_other(
    endpoint: ModelEndpoint, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As "local" a session has runs below it, and is there for the next completion."""
    for module in (library, environments):
        monkeypatch.setattr(module, "get_environment", module.get_environment)
    register("local")
    child = "answer['content'] = 'gold'\nanswer['ready'] = True"
    endpoint.script(
        code("word = rlm_query('Which metal?')", SUBMIT.format("word")),
        code(child),
        code("print(context_1, word)", SUBMIT.format("context_1 + word")),
    )
    with RLM(**options | {"environment": "local"}, max_depth=2, persistent=True) as rlm:
        assert rlm.completion("one").response == "gold"
        assert rlm.completion("two").response == "twogold"
