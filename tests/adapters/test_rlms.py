"""The reference implementation of recursive language models on our sessions, with a scripted model."""

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from model_endpoint import ModelEndpoint, Reply

pytest.importorskip("rlm", reason="rlms is not installed: `make test-adapters` installs it, with its 250 MB")

from rlm import RLM
from rlm.logger import RLMLogger

from rlm_client.adapters.rlms_environment import NAME, register
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


def code(*lines: str) -> Reply:
    """A reply with a block of code."""
    return Reply("Next.\n```repl\n" + "\n".join(lines) + "\n```\n")


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
