"""`rlm_client.RLM`: the whole loop, with real kernels and a model behind a real endpoint that says what is scripted."""

import asyncio
import itertools
import json
import socket
import traceback
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from model_endpoint import Asked, ModelEndpoint, Reply, code
from pydantic import BaseModel, ConfigDict

from rlm_client import RLM, Client, RunLimits
from rlm_client.client import call_tool
from rlm_client.models.errors import ModelMisconfigured, ModelUnavailable
from rlm_client.models.interface import ChatMessage, Completion, Usage
from rlm_client.results import Cell
from rlm_client.rlm.budget import RunBudgetExceeded
from rlm_client.rlm.loop import Event
from rlm_client.rlm.trajectory import as_json_lines
from rlm_client.rlm.workspace import ClientWorkspace, CodeOutcome
from rlm_ipc.daemon_connection import DaemonConnection, ask
from rlm_ipc.errors import CallerError, DaemonRefused
from rlm_ipc.session_record import SessionRecord
from rlm_ipc.session_requests import KeepTurn, ListSessions, ShowRecord
from rlm_mcp.formats.notebook import as_markdown, as_notebook
from rlm_mcp.formats.trajectory import as_json_lines as record_lines

pytestmark = pytest.mark.usefixtures("daemon")
SUBMIT = "answer['content'] = {}\nanswer['ready'] = True"


def _said(asked: Asked) -> str:
    return asked.messages[-1]["content"]


def test_a_question_is_answered_in_turns(model: ModelEndpoint) -> None:
    """The model sees what its code prints; a query of the code is answered; what it submits is the answer."""
    model.script(
        code("print(context['line_count'])"),
        code("hit = next(line for line in context['lines'] if 'needle' in line)", "said = llm_query('Key? ' + hit)"),
        Reply("seven"),
        code("print(said)", SUBMIT.format("said.upper()")),
    )
    solution = RLM().completion("Which key?", "hay\n" * 5000 + "the needle is 7\n")
    assert (solution.answer, solution.status, len(solution.turns)) == ("SEVEN", "answered", 3)
    root, second, query, third = model.requests
    assert "Which key?" in _said(root)
    assert "5,001 lines" in root.messages[0]["content"]
    assert "5001" in _said(second)
    assert [message["content"] for message in query.messages] == ["Key? the needle is 7"]
    assert [message["role"] for message in third.messages] == ["system", *["user", "assistant"] * 2, "user"]
    assert solution.budget.calls == 4
    assert solution.budget.cost > 0


def test_an_error_is_short_and_keeps_its_cause(model: ModelEndpoint, tmp_path: Path) -> None:
    """A program that fails ends with one sentence, not with the frames of the libraries, which stay reachable."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        model.configure(tmp_path, base_url=f"http://127.0.0.1:{taken.getsockname()[1]}/v1")
        for ask in (RLM().completion, lambda question: asyncio.run(RLM().acompletion(question))):
            with pytest.raises(ModelUnavailable, match=r"nothing listens at .*; start the server") as caught:
                ask("?")
            shown = "".join(traceback.format_exception(caught.value))
            assert shown.count("Traceback") == 1
            assert "/site-packages/" not in shown
            cause: BaseException | None = caught.value
            while cause is not None and not isinstance(cause, ConnectionRefusedError):
                cause = getattr(cause, "os_error", None) or cause.__cause__ or cause.__context__
            assert cause is not None


@pytest.mark.anyio
async def test_a_notebook_may_ask_without_await(model: ModelEndpoint) -> None:
    """Its own loop runs already, where `asyncio.run` cannot."""
    model.script(code(SUBMIT.format("1")))
    assert RLM().completion("?", "text").answer == "1"


def test_its_session_is_gone_afterwards_unless_it_was_named(model: ModelEndpoint) -> None:
    """Sessions do not pile up; one of the caller's stays, with its variables."""
    model.script(code("x = 5", SUBMIT.format("1")), code("print(x)", SUBMIT.format("x")))
    first = RLM(session="rlm-kept").completion("?", "text")
    assert RLM(session="rlm-kept").completion("?").answer == "5"
    assert first.session == "rlm-kept"
    model.script(code(SUBMIT.format("2")))
    other = RLM().completion("?", "text")
    with DaemonConnection(ListSessions()) as control:
        open_now = {row.session for row in control.reply.sessions}
    assert "rlm-kept" in open_now
    assert other.session not in open_now
    with Client("rlm-kept") as client:
        client.end_session()


def test_a_run_in_a_frame_is_turns_of_it(model: ModelEndpoint) -> None:
    """P-10: the question, the model's replies and its cells; a frame's id stands for its session here too."""
    model.script(
        code("n = 6 * 7", "said = llm_query('Sure?')"), Reply("yes"), code("print(n, said)", SUBMIT.format("n"))
    )
    with Client("goals") as client, client.push("work it out") as goal:
        solution = RLM(session=goal.id).completion("What is it?")
        assert solution.answer == "42"
        turns = goal.frame(do="turns").turns
        said = [turn["content"] for turn in turns if turn["role"] != "tool" and turn["content"]]
        assert said[0].startswith("What is it?")
        assert [text for text in said if text.startswith("Next.")] == [turn.reply.text for turn in solution.turns]
        ran = [turn["tool_calls"][0]["function"]["arguments"] for turn in turns if turn.get("tool_calls")]
        assert any("6 * 7" in arguments for arguments in ran)


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (Reply("```repl\nfound = 'deep ' * 3\n```\nFINAL_VAR(found)"), "deep deep deep "),
        (Reply("FINAL(it is (almost) 42)"), "it is (almost) 42"),
        (code("found = [1, 2]", "FINAL_VAR('found')"), "1\n2"),
        (code("found = [1, 2]", "answer.update(content='found', ready=True, note='x\\nnamed: True')"), "found"),
        (code("found = [1, 2]", "FINAL_VAR('found')", "answer['content'] = 'another'"), "another"),
        (code("FINAL('said in code')"), "said in code"),
        (code("answer = {'ready': True, 'content': 'bound anew'}"), "bound anew"),
        (code(SUBMIT.format("'long ' * 60000")), "long " * 60000),
    ],
)
def test_every_way_to_submit_is_taken(model: ModelEndpoint, reply: Reply, answer: str) -> None:
    """The dictionary, in place or bound anew, of any length; FINAL and FINAL_VAR, in the reply or in code."""
    model.script(reply)
    assert RLM(limits=RunLimits(turns=1)).completion("?", "text").answer == answer


@pytest.mark.parametrize(
    "line",
    ["answer['content'] = 'x\\nready: True\\ncontent: y'", "answer = 'content: copied\\nready: True'"],
    ids=["a draft", "a text"],
)
def test_what_reads_like_an_answer_is_none(model: ModelEndpoint, line: str) -> None:
    """Only the dictionary's own field submits: data that a draft quotes, or that has taken its name, does not."""
    model.script(code(line), code("answer = {'content': 'mine', 'ready': True}"))
    solution = RLM().completion("?", "text")
    assert (solution.answer, len(solution.turns)) == ("mine", 2)


def test_data_and_files_become_variables(model: ModelEndpoint, tmp_path: Path) -> None:
    """A list is a list; several files are one text with a table of them; a path alone is one path."""
    model.script(code("answer.update(content=context[1]['a'], ready=True)"))
    assert RLM().completion("?", [1, {"a": "second"}]).answer == "second"
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(f"I am {name}\n")
    model.script(code("answer.update(content=context['content'].count('I am'), ready=True)"))
    assert RLM().completion("?", paths=[tmp_path / "a.txt", tmp_path / "b.txt"]).answer == "2"
    assert "context_files" in model.requests[-1].messages[0]["content"]
    model.script(code("answer.update(content=context['content'], ready=True)"))
    assert RLM().completion("?", paths=str(tmp_path / "a.txt")).answer == "I am a.txt\n"
    with pytest.raises(CallerError, match="either"):
        RLM().completion("?", "text", paths=[tmp_path])
    with pytest.raises(CallerError, match="JSON"):
        RLM().completion("?", {1, 2})


def test_an_error_is_shown_to_the_model_and_the_run_goes_on(model: ModelEndpoint) -> None:
    """A traceback, a refusal of the policy, a query that failed, a reply without code: the next turn tells it."""
    model.script(
        code("1 / 0"),
        code("import socket"),
        code("llm_query('?')"),
        Reply("no", status=400),
        Reply("I think about it."),
        Reply("```repl\nprint('cut"),
        code(SUBMIT.format("'done'")),
    )
    assert RLM().completion("?", "text").answer == "done"
    told = [_said(asked) for asked in model.requests if asked.messages[0]["role"] == "system"][1:]
    for text, wanted in zip(
        told, ("ZeroDivisionError", "ImportRefused", "QueryFailed", "Nothing was run", "was cut"), strict=True
    ):
        assert wanted in text


def test_deferred_queries_are_answered_after_the_cell(model: ModelEndpoint, tmp_path: Path) -> None:
    """K-22, K-23: under a policy that defers, the placeholders of a cell are answers in the next turn."""
    model.script(
        code("notes = llm_query_batched(['a', 'b'])", "print(notes[0])"),
        Reply("one"),
        Reply("one"),
        code(SUBMIT.format("'+'.join(map(str, notes))")),
    )
    assert RLM(policy="default").completion("?", "text").answer == "one+one"
    assert "[DEFERRED:q_000]" in _said(model.requests[-1])
    assert "answered now: q_000, q_001" in _said(model.requests[-1])


def test_a_query_that_a_tool_has_asked_is_not_the_runs_to_answer() -> None:
    """An agent asks it in the same session while code of the run waits: the run neither answers nor pays for it."""
    with Client("shared") as client:
        cell = client.eval_code("llm_query('of code')")
        assert call_tool("llm_query", {"prompt": "of an agent"}, session="shared")["id"]
        assert [query.prompt for query in client.pending_queries()] == ["of code", "of an agent"]
        assert [query.prompt for query in ClientWorkspace(client, "shared")._asked(cell)] == ["of code"]
        client.end_session()


def test_a_batch_is_asked_at_once_with_whole_prompts(model: ModelEndpoint) -> None:
    """Prompts that no tool's answer has room for arrive whole; they are under way together."""
    asks = "sizes = llm_query_batched(['x' * 70000 + str(i) for i in range(8)])"
    model.script(code(asks, SUBMIT.format("' '.join(sizes)")))
    model.reply = lambda asked: Reply(str(len(asked.prompt)), together=8, delay=0.05)
    assert RLM().completion("?", "text").answer == " ".join(["70001"] * 8)
    assert model.most_at_once == 8


@pytest.mark.parametrize(
    ("limits", "exceeded"),
    [
        (RunLimits(calls=2), "calls"),
        (RunLimits(tokens=1), "tokens"),
        (RunLimits(cost=1e-9), "cost"),
        (RunLimits(seconds=1.5), "seconds"),
    ],
)
def test_a_budget_ends_a_run(model: ModelEndpoint, limits: RunLimits, exceeded: str) -> None:
    """Whatever is used up is named, with what to raise; no session is left."""
    model.reply = lambda _: code("import time", "time.sleep(0.3)")
    with pytest.raises(RunBudgetExceeded, match=exceeded) as caught:
        RLM(limits=limits).completion("?", "text")
    assert caught.value.limit == exceeded
    with DaemonConnection(ListSessions()) as control:
        assert [row.session for row in control.reply.sessions if row.session.startswith("rlm-")] == []


def test_tokens_of_all_answers_add_up(model: ModelEndpoint) -> None:
    """Those in and those out, of turns and of queries."""
    model.script(
        code("said = llm_query('a')", tokens=(1, 10)),
        Reply("ok", tokens=(2, 20)),
        code(SUBMIT.format("said"), tokens=(4, 40)),
    )
    budget = RLM().completion("?", "text").budget
    assert (budget.calls, budget.input_tokens, budget.output_tokens) == (3, 7, 70)


@pytest.mark.parametrize(("tokens", "asked"), [(23, 2), (24, 2), (25, 3)])
def test_a_run_ends_where_its_tokens_are_used_up(model: ModelEndpoint, tokens: int, asked: int) -> None:
    """At the limit nothing is asked any more; one token below it something is."""
    model.reply = lambda _: code("1 + 1", tokens=(2, 10))
    with pytest.raises(RunBudgetExceeded, match="tokens"):
        RLM(limits=RunLimits(tokens=tokens)).completion("?", "text")
    assert len(model.requests) == asked


def test_queries_count_against_the_budget(model: ModelEndpoint) -> None:
    """One call too many fails that query in the code, and ends the run at the next turn."""
    model.reply = lambda _: Reply("ok")
    model.script(code("notes = llm_query_batched(['a', 'b', 'c'])", "print(notes)"))
    with pytest.raises(RunBudgetExceeded, match="calls"):
        RLM(limits=RunLimits(calls=3)).completion("?", "text")
    assert len(model.requests) == 3


def test_out_of_turns_the_model_has_a_last_word(model: ModelEndpoint) -> None:
    """Without code; what it says then is the answer, and marked as such."""
    model.script(code("print(1)"), Reply("FINAL(perhaps one)"))
    solution = RLM(limits=RunLimits(turns=1)).completion("?", "text")
    assert (solution.answer, solution.status) == ("perhaps one", "out_of_turns")
    said = _said(model.requests[-1])
    assert ("no more turns" in said, "Turn 2 of 1" in said) == (True, False)


def test_the_name_of_a_file_is_not_taken_for_its_text(model: ModelEndpoint, tmp_path: Path) -> None:
    """It costs no call, and says how to pass the file; a path is one, and a text with the same word is a text."""
    file = tmp_path / "app.log"
    file.write_text("ERROR: disk")
    with pytest.raises(CallerError, match=r"names a file and is not its text; pass pathlib\.Path"):
        RLM().completion("?", str(file))
    assert not model.requests
    model.reply = lambda _: code("answer.update(content=context['content'], ready=True)")
    assert RLM().completion("?", file).answer == "ERROR: disk"
    assert RLM().completion("?", "no-such.log").answer == "no-such.log"


def test_a_solution_is_shown_short(model: ModelEndpoint) -> None:
    """At a prompt in one line, in a notebook with question and answer, where markup of either is text."""
    model.reply = lambda _: code("answer.update(content='<b>' * 40, ready=True)")
    solution = RLM().completion("how <many>?", "text")
    assert len(repr(solution)) < 160
    assert "1 turns, 1 calls" in repr(solution)
    shown = solution._repr_html_()
    assert ("how &lt;many&gt;?" in shown, "&lt;b&gt;" in shown, "<b><b>" in shown) == (True, True, False)
    assert (repr(Client("a")), repr(Client("a", policy="data"))) == ("Client('a')", "Client('a', policy='data')")
    assert "&lt;" in Client("<")._repr_html_()


def test_a_model_that_is_not_configured_is_refused_by_name(model: ModelEndpoint) -> None:
    """The names that there are are told."""
    with pytest.raises(ModelMisconfigured, match=r"'other'.*configured are test"):
        RLM("other").completion("?", "text")


def test_without_a_model_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Before anything is loaded or started."""
    monkeypatch.setenv("RLM_KERNEL_CONFIG_DIR", str(tmp_path))
    with pytest.raises(ModelMisconfigured, match="RLM_KERNEL_MODEL"):
        RLM().completion("?", "text")


class Parrot:
    """A model that is a Python object: it answers every query with its length, the root with the next reply."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = iter(replies)

    async def complete(
        self,
        messages: list[ChatMessage],
        *,
        model: str | None = None,
        max_tokens: int | None = None,
        schema: dict[str, Any] | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Completion:
        """Answer."""
        text = next(self.replies).text if messages[0]["role"] == "system" else str(len(messages[0]["content"]))
        if on_text is not None:
            on_text(text)
        return Completion(text, Usage(1, 1), "parrot", "stop")


@pytest.fixture
def events() -> Iterator[list[Event]]:
    """Collect what a run tells."""
    seen: list[Event] = []
    yield seen
    assert {event.depth for event in seen} <= {0, 1}


def test_a_model_can_be_an_object_and_a_run_be_watched(events: list[Event]) -> None:
    """No endpoint is needed; who watches hears of turns, text, code, outputs and queries in their order."""
    parrot = Parrot(code("print(llm_query('four'))"), code(SUBMIT.format("'watched'")))
    solution = RLM(parrot, watch=events.append).completion("?", "text")
    assert (solution.answer, solution.model) == ("watched", "parrot")
    kinds = [event.kind for event in events]
    assert kinds == ["turn", "text", "code", "asked", "answered", "output", "turn", "text", "code", "output"]
    assert events[5].text == "4"


def test_a_child_works_in_a_copy_of_the_session(model: ModelEndpoint) -> None:
    """The child has the variables and its task, answers in turns of its own, and leaves the parent as it is."""
    turns = (
        code("words = 'abbb'"),
        code("got = rlm_query('count the b' + ' ' * 9000 + '?')", "print(got, 'hidden' in dir())"),
        code(SUBMIT.format("got")),
    )

    def reply(asked: Asked) -> Reply:
        if asked.messages[0]["role"] != "system":
            return Reply("!")
        if asked.messages[1]["content"].startswith("Root"):
            return turns[sum(message["role"] == "assistant" for message in asked.messages)]
        return code("hidden = 1", SUBMIT.format("str(words.count('b')) + task['content'][-1] + llm_query('sub')"))

    model.reply = reply
    events: list[Event] = []
    solution = RLM(watch=events.append).completion("Root", "text")
    assert solution.answer == "3?!"
    assert "3?! False" in [event.text for event in events if event.kind == "output" and event.depth == 0]
    [child] = solution.children
    assert (child.answer, child.status, len(child.turns)) == ("3?!", "answered", 1)
    assert child.session in {event.text for event in events if event.kind == "child"}
    assert solution.budget.calls == 5
    with DaemonConnection(ListSessions()) as control:
        assert child.session not in {row.session for row in control.reply.sessions}


def test_an_answer_has_to_fit_its_schema(model: ModelEndpoint) -> None:
    """The model is asked again with what is wrong, so often; then the query fails, and the run goes on."""
    asks = "llm_query('how many?', schema={'type': 'integer'})"
    model.script(
        code(f"print({asks} + 1)"), Reply("many"), Reply("3"),
        code(asks), Reply("many"), Reply("many"), Reply("many"),
        code(SUBMIT.format("'done'")),
    )  # fmt: skip
    assert RLM(limits=RunLimits(turns=3)).completion("?", "text").answer == "done"
    assert "does not fit the schema" in _said(model.requests[2])
    assert "Output:\n4" in _said(model.requests[3])
    assert "3 answers did not fit" in _said(model.requests[7])


def test_beyond_the_depth_a_child_is_a_query(model: ModelEndpoint) -> None:
    """At depth 0 rlm_query is answered as llm_query is; the model is not told of it."""
    model.script(code("print(rlm_query_batched(['a', 'b']))"), Reply("one"), Reply("one"), code(SUBMIT.format("1")))
    solution = RLM(limits=RunLimits(depth=0)).completion("?", "text")
    assert (solution.answer, solution.children) == ("1", [])
    assert "['one', 'one']" in _said(model.requests[-1])
    assert "rlm_query" not in model.requests[0].messages[0]["content"]


class _Read(BaseModel):
    """What the reference visualiser reads of a line: it measures, cuts and sums these fields without a check."""

    model_config = ConfigDict(strict=True)


class _ReadMessage(_Read):
    role: Literal["system", "user", "assistant"]
    content: str


class _ReadCall(_Read):
    prompt: str
    response: str
    prompt_tokens: int
    completion_tokens: int
    execution_time: float


class _ReadResult(_Read):
    stdout: str
    stderr: str
    locals: dict[str, Any]
    execution_time: float
    rlm_calls: list[_ReadCall]


class _ReadBlock(_Read):
    code: str
    result: _ReadResult


class _ReadIteration(_Read):
    type: Literal["iteration"]
    iteration: int
    timestamp: str
    prompt: list[_ReadMessage]
    response: str
    code_blocks: list[_ReadBlock]
    final_answer: str | None
    iteration_time: float


class _ReadMetadata(_Read):
    type: Literal["metadata"]
    root_model: str | None
    max_depth: int | None
    max_iterations: int | None
    backend: str
    backend_kwargs: dict[str, Any]
    environment_type: str
    environment_kwargs: dict[str, Any]
    other_backends: list[str] | None


def _read(lines: str) -> list[_ReadIteration]:
    first, *rest = lines.splitlines()  # which also ends a line where nothing but JSON's escapes keeps it whole
    _ReadMetadata.model_validate_json(first)
    turns = [_ReadIteration.model_validate_json(line) for line in rest]
    assert [turn.iteration for turn in turns] == list(range(1, len(turns) + 1))
    assert all(datetime.fromisoformat(turn.timestamp).tzinfo for turn in turns)
    return turns


def test_both_writers_have_every_field_that_the_reference_visualiser_reads(model: ModelEndpoint) -> None:
    """In the types that it expects, with the output apart from the error, and each answer's time or the reason."""
    model.script(
        code("print('before \u2028')", "said = llm_query_batched(['a', 'b'])", "1 / 0"), Reply("one"), Reply("one"),
        code("llm_query('?')"), Reply("no", status=400),
        Reply("I think.\u2028"),
        code(SUBMIT.format("'so'")),
    )  # fmt: skip
    solution = RLM(session="both").completion("Why so?", "text")
    of_run, of_session = _read(as_json_lines(solution)), _read(record_lines(_record(solution.session)))
    for turns in (of_run, of_session):
        assert [turn.final_answer for turn in turns] == [None, None, None, "so"]
        assert [len(turn.code_blocks) for turn in turns] == [1, 1, 0, 1]
        [first, second, last] = [turn.code_blocks[0].result for turn in turns if turn.code_blocks]
        assert first.stdout == "before \u2028\n"
        assert "ZeroDivisionError: division by zero" in first.stderr
        assert [(call.prompt, call.response) for call in first.rlm_calls] == [("a", "one"), ("b", "one")]
        assert all(call.execution_time > 0 for call in first.rlm_calls)
        assert second.rlm_calls[0].response.startswith("Error: ")
        assert "QueryFailed" in second.stderr
        assert (last.stderr, last.rlm_calls) == ("", [])
        assert turns[2].response == "I think.\u2028"
    assert [call.prompt_tokens for call in of_run[0].code_blocks[0].result.rlm_calls] == [1, 1]


def test_a_run_is_json_lines_of_its_turns(model: ModelEndpoint) -> None:
    """Each with all that the model had been told until then, its code, output and queries."""
    model.script(code("print(llm_query('why'))", "1 / 0"), Reply("because"), code(SUBMIT.format("'so'")))
    solution = RLM().completion("Why so?", "text")
    first, *turns = [json.loads(line) for line in as_json_lines(solution).splitlines()]
    assert (first["type"], first["root_model"], first["max_iterations"]) == ("metadata", "scripted", 30)
    assert [(turn["type"], turn["iteration"], turn["final_answer"]) for turn in turns] == [
        ("iteration", 1, None),
        ("iteration", 2, "so"),
    ]
    [block] = turns[0]["code_blocks"]
    assert block["result"]["stdout"] == "because\n"
    assert "ZeroDivisionError" in block["result"]["stderr"]
    [asked] = block["result"]["rlm_calls"]
    assert (asked["prompt"], asked["response"], asked["prompt_tokens"]) == ("why", "because", 1)
    assert [message["role"] for message in turns[1]["prompt"]] == ["system", "user", "assistant", "user"]
    assert all(isinstance(turn["iteration_time"], float) and turn["timestamp"] for turn in turns)


def _record(session: str) -> SessionRecord:
    with DaemonConnection(ShowRecord(session=session)) as control:
        return control.reply


def test_a_run_can_be_exported_while_its_session_lives(model: ModelEndpoint) -> None:
    """The journal has every turn, cell, query and answer: as JSON lines, in the notebook, and as Markdown."""
    model.script(
        code("print(llm_query('why'))"), Reply("because"), code("1 / 0"), code(SUBMIT.format("'so <b>it</b> is'"))
    )
    session = RLM(session="exported").completion("Why so?", "text").session
    record = _record(session)
    first, *turns = [json.loads(line) for line in record_lines(record).splitlines()]
    assert first["environment_kwargs"] == {"session": session}
    assert [turn["iteration"] for turn in turns] == [1, 2, 3]
    assert [turn["final_answer"] for turn in turns] == [None, None, "so <b>it</b> is"]
    [asked] = turns[0]["code_blocks"][0]["result"]["rlm_calls"]
    assert (asked["prompt"], asked["response"]) == ("why", "because")
    assert "ZeroDivisionError" in turns[1]["code_blocks"][0]["result"]["stderr"]
    assert [message["role"] for message in turns[2]["prompt"]] == ["system", *["user", "assistant"] * 2, "user"]
    cells = as_notebook(record, 0.0)["cells"]
    kinds = [cell["id"].partition("-")[0] for cell in cells]
    assert kinds == ["about", "cell", "turn", "cell", "turn", "cell", "turn", "cell", "answer"]
    assert "```text\nso <b>it</b> is\n```" in cells[-1]["source"]
    assert "## Turn 3 · scripted" in as_markdown(record, 0.0)


def test_cells_of_agents_are_json_lines_too() -> None:
    """A session without a run of its own: each cell is an iteration."""
    with Client("lines") as client:
        client.eval_code("print('seen')")
        [line] = _read(record_lines(_record("lines")))
        client.end_session()
    assert line.code_blocks[0].result.stdout == "seen"
    assert line.prompt[0].role == "user"


def test_a_query_without_an_answer_says_so_in_json_lines() -> None:
    """One that is not answered yet is told as none, as one is that failed."""
    with Client("open") as client:
        client.eval_code("a, b = llm_query_batched(['a?', 'b?'])")
        client.answer_queries({"q_000": {"error": "cannot say"}})
        [line] = _read(record_lines(_record("open")))
        client.end_session()
    failed, open_one = line.code_blocks[0].result.rlm_calls
    assert (failed.response, failed.execution_time > 0) == ("Error: cannot say", True)
    assert (open_one.response, open_one.execution_time) == ("Error: no answer, the query is pending", 0)


def test_a_turn_of_a_session_that_never_was_is_refused(module_isolation: Any) -> None:
    """Nothing is written down for nobody."""
    with pytest.raises(DaemonRefused, match="no session never is known; list them"):
        ask(KeepTurn("never", "m", (), "", None, 0, 0, 0.0, 1.0), start=True)


def test_a_long_run_does_not_grow_without_bound(model: ModelEndpoint) -> None:
    """Prompts stay within their bound, the question always stays, and between folds each prompt begins as the last."""
    bound, turns = 6000, 60
    model.reply = lambda _: code(f"print('{len(model.requests)} ' * 700)")
    solution = RLM(limits=RunLimits(turns=turns, history=bound)).completion("Which key is it?", "text")
    assert (solution.status, len(solution.turns)) == ("out_of_turns", turns + 1)
    prompts = [[message["content"] for message in asked.messages] for asked in model.requests]
    sizes = [sum(map(len, prompt)) // 4 for prompt in prompts]
    assert max(sizes) <= bound
    assert sum(sizes[40:50]) > 0.8 * sum(sizes[20:30])  # bounded, and not emptied
    grown = [after[: len(before)] == before for before, after in itertools.pairwise(prompts)]
    assert grown.count(False) < turns / 3
    opening = prompts[1][:3]
    assert "Which key is it?" in opening[1]
    assert all(prompt[:3] == opening for prompt in prompts[1:])
    summary = prompts[-1][3]
    assert summary.startswith("[Context Summary]\n")
    assert "of output, no longer shown; full text: the session's journal; print again what you need]" in str(prompts)
    last = model.requests[-1].messages
    assert [message["role"] for message in last[:6]] == ["system", "user", "assistant", "user", "user", "assistant"]


def test_a_run_without_a_bound_is_shown_whole(model: ModelEndpoint) -> None:
    """Whoever has the room can have all of it."""
    model.reply = lambda _: code("print('long ' * 1000)")
    RLM(limits=RunLimits(turns=8, history=None)).completion("?", "text")
    assert [len(asked.messages) for asked in model.requests] == list(range(2, 20, 2))


def test_a_model_reads_what_its_code_displays() -> None:
    """After what it prints: a table that was displayed in a loop would be missing without a word."""
    cell = Cell.read({"success": True, "stdout": "a\n", "displayed": ["1", "2"]})
    assert CodeOutcome("code").came(cell).stdout == "a\n1\n2\n"
