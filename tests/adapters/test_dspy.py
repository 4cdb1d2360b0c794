"""`dspy.RLM` on our sessions: the real library, real kernels, and a model behind a real endpoint that is scripted.

Each test imports the library itself: it takes longer than all other imports, and every worker collects every test.
"""

from collections.abc import Iterator

import pytest
from model_endpoint import ModelEndpoint, Reply

from rlm_ipc.daemon_connection import DaemonConnection
from rlm_ipc.session_requests import ListSessions

pytestmark = [
    pytest.mark.usefixtures("daemon"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # the library's own
]


def action(code: str) -> str:
    """What a model says to dspy that wants code to be run."""
    said = {"reasoning": "Next.", "code": f"```python\n{code}\n```"}
    return "\n\n".join(f"[[ ## {name} ## ]]\n{text}" for name, text in said.items()) + "\n\n[[ ## completed ## ]]"


@pytest.fixture
def model(endpoint: ModelEndpoint) -> Iterator[ModelEndpoint]:
    """Give the endpoint as dspy's model."""
    import dspy

    from rlm_client.adapters.dspy_interpreter import SessionInterpreter

    lm = dspy.LM("openai/scripted", api_base=endpoint.url, api_key="none", cache=False)
    with dspy.context(lm=lm, adapter=dspy.ChatAdapter(), interpreter_factory=SessionInterpreter):
        yield endpoint


def _sessions() -> list[str]:
    with DaemonConnection(ListSessions()) as control:
        return [row.session for row in control.reply.sessions if row.session.startswith("dspy-")]


def test_a_recursive_model_of_dspy_works_in_a_session(model: ModelEndpoint) -> None:
    """Input variables, printed output, a query, a tool of the host and the submission; then the session is gone."""
    import dspy

    model.script(
        Reply(action("print(len(context), type(context).__name__)")),
        Reply(action("hit = [l for l in context.splitlines() if 'needle' in l][0]\nword = llm_query('Which? ' + hit)")),
        Reply("silver"),
        Reply(action("notes = llm_query_batched(['a', 'b'])\nprint(shout(word), notes)")),
        Reply("note"),
        Reply("note"),
        Reply(action("SUBMIT(answer=shout(text=word), count=2)\nprint('never')")),
    )

    def shout(text: str) -> str:
        """Say it loudly."""
        return text.upper()

    rlm = dspy.RLM("context, question -> answer, count: int", tools=[shout])
    found = rlm(context="hay\n" * 50_000 + "a silver needle\n", question="Of what?")
    assert (found.answer, found.count) == ("SILVER", 2)
    said = [step["output"] for step in found.trajectory]
    assert "200016 str" in said[0]
    assert "SILVER ['note', 'note']" in said[2]
    assert model.requests[2].prompt == "Which? a silver needle"
    assert _sessions() == []


def test_what_goes_wrong_in_code_is_told_to_the_model(model: ModelEndpoint) -> None:
    """Errors of the code, of Python, of the policy and of a tool; the run goes on."""
    import dspy

    def fail() -> None:
        """Fail."""
        raise OSError("the host cannot")

    steps = ["1 / 0", "def (", "import socket", "fail()", "SUBMIT('done')"]
    model.script(*(Reply(action(step)) for step in steps))
    found = dspy.RLM("question -> answer", tools=[fail])(question="?")
    assert found.answer == "done"
    wanted = ("ZeroDivisionError", "SyntaxError", "ImportRefused", "the host cannot")
    assert [text in step["output"] for text, step in zip(wanted, found.trajectory, strict=False)] == [True] * 4


def test_it_is_an_interpreter_as_dspy_defines_one() -> None:
    """State stays, variables are bound again only when they are others, and errors are of the right kind."""
    from dspy.primitives.code_interpreter import CodeExecutionError, CodeInterpreter, CodeInterpreterError

    from rlm_client.adapters.dspy_interpreter import SessionInterpreter

    interpreter = SessionInterpreter("default")
    assert isinstance(interpreter, CodeInterpreter)
    interpreter.start()
    assert interpreter.execute("x = 1") is None
    assert interpreter.execute("print(x + y)", {"y": 2}) == "3\n"
    big = "long " * 100_000
    assert interpreter.execute("print(len(big), big[:4])", {"big": big}) == "500000 long\n"
    assert interpreter.execute("big = 'changed'", {"big": big}) is None
    with pytest.raises(SyntaxError):
        interpreter.execute("def (")
    with pytest.raises(CodeExecutionError, match="ZeroDivisionError"):
        interpreter.execute("1 / 0")
    with pytest.raises(CodeInterpreterError, match="JSON") as refused:
        interpreter.execute("1", {"no": object()})
    assert type(refused.value) is CodeInterpreterError, "no other code would help"
    with pytest.raises(CodeExecutionError, match="no tool llm_query"):
        interpreter.execute("llm_query('?', mode='blocking')")
    interpreter.shutdown()
    interpreter.shutdown()
    for use in (interpreter.start, lambda: interpreter.execute("x")):
        with pytest.raises(CodeInterpreterError, match="session has ended"):
            use()
    stranger = SessionInterpreter("no such policy")
    with pytest.raises(CodeInterpreterError, match="policy"):
        stranger.execute("1")
    stranger.shutdown()


def test_values_and_tools_are_those_that_dspy_has() -> None:
    """Large inputs with an underscore, models and named tuples, asynchronous tools, and values that are shown."""
    from datetime import UTC, datetime
    from enum import Enum
    from typing import NamedTuple

    from dspy.primitives.code_interpreter import CodeExecutionError, CodeInterpreterError

    from rlm_client.adapters.dspy_interpreter import SessionInterpreter

    class Color(Enum):
        RED = "red"

    class Doubled(NamedTuple):
        twice: int

    async def later(number: int) -> Doubled:
        """Double it later."""
        return Doubled(number * 2)

    with SessionInterpreter(tools={"later": later}, output_fields=[{"name": "answer"}]) as interpreter:
        assert interpreter.execute("len(_raw_text)", {"_raw_text": "x" * 200_000}) == 200_000
        assert interpreter.execute("later(21)['twice'], odd", {"odd": {3}}) == [42, [3]]
        assert interpreter.execute("'plain'") == "plain"
        with pytest.raises(CodeInterpreterError, match="Invalid variable name"):
            interpreter.execute("1", {"class": 1})
        interpreter.tools["again"] = lambda: interpreter.execute("1")
        with pytest.raises(CodeExecutionError, match="cannot execute recursively"):
            interpreter.execute("again()")
        assert interpreter.execute("later(21)['twice'], odd", {"odd": {30, 4, 1000}}) == [42, [4, 30, 1000]]
        given = {"when": datetime(2026, 1, 2, 3, 4, tzinfo=UTC), "paint": [Color.RED]}
        assert interpreter.execute("when, paint", given) == ["2026-01-02T03:04:00+00:00", ["red"]]
        assert interpreter("SUBMIT('yes')").output == {"answer": "yes"}


def test_what_is_submitted_has_the_fields_that_are_wanted() -> None:
    """Code that submits too little or too much is told so, in Python's words, and can try again."""
    from dspy.primitives.code_interpreter import CodeExecutionError

    from rlm_client.adapters.dspy_interpreter import SessionInterpreter

    fields = [{"name": "answer"}, {"name": "score"}]
    with SessionInterpreter(output_fields=fields) as interpreter:
        for call, why in {
            "SUBMIT('a')": r"missing 1 required positional argument: 'score'",
            "SUBMIT(score=1, answr='a')": "an unexpected keyword argument 'answr'",
            "SUBMIT('a', answer='b')": "multiple values for argument 'answer'",
            "SUBMIT('a', 1, 2)": "takes 2 positional arguments but 3 were given",
        }.items():
            with pytest.raises(CodeExecutionError, match=why):
                interpreter.execute(call)
        assert interpreter.execute("SUBMIT('a', score=1)").output == {"answer": "a", "score": 1}
        interpreter.output_fields = None
        assert interpreter.execute("SUBMIT(['a', 1])").output == {"output": ["a", 1]}
