"""Texts that a program hands over: what sessions say of where they came from."""

import pytest
from model_endpoint import ModelEndpoint, code

from rlm_client import RLM, Client
from rlm_client.adapters.hosted import Hosted
from rlm_ipc.daemon_connection import ask
from rlm_ipc.errors import ToolFailed
from rlm_ipc.session_record import RecordedContext
from rlm_ipc.session_requests import ShowRecord

pytestmark = pytest.mark.usefixtures("daemon")


def _texts(session: str) -> tuple[RecordedContext, ...]:
    return ask(ShowRecord(session), start=True).contexts


@pytest.mark.parametrize(("context", "name"), [("hay\n" * 5, "context"), ([{"hay": 1}], "context_json")])
def test_a_text_of_a_program_came_from_no_file(model: ModelEndpoint, context: object, name: str) -> None:
    """The file that it travels in is gone at once: whoever reads of it would look for it, and could not load it."""
    model.script(code("answer.update(content='5', ready=True)"))
    RLM(session=f"handed-{name}").completion("How much?", context)
    [text] = _texts(f"handed-{name}")
    assert (text.name, text.paths) == (name, ())
    with Client(f"handed-{name}") as client:
        assert client.var_info(name).raw["metadata"]["path"] == "-"
        with pytest.raises(ToolFailed, match="was not loaded from a file"):
            client.refresh(name)
        client.end_session()


def test_a_large_value_of_an_adapter_came_from_no_file() -> None:
    """As a text or as JSON: adapters bind what their library holds."""
    hosted = Hosted("handed", lambda _: [])
    try:
        hosted.bind("text", "hay" * 50_000)
        hosted.bind("data", ["hay"] * 50_000)
        assert [(text.name, text.paths) for text in _texts(str(hosted.client.session))] == [
            ("text_text", ()),
            ("data_json", ()),
        ]
        assert hosted.run("print(len(text), len(data))").stdout == "150000 50000\n"
    finally:
        hosted.end()
