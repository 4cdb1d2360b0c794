"""``rlm-kernel ask``: the program, as a person at a prompt or a script uses it."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import cli
from model_endpoint import Asked, ModelEndpoint, Reply
from waiting import wait_until

MB = 1_000_000
NEEDLE = "The code word of the harbour master is: marmalade."


@pytest.fixture(autouse=True)
def _configured(endpoint: ModelEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint.configure(tmp_path)
    monkeypatch.setenv("RLM_KERNEL_CONFIG_DIR", str(tmp_path))


def ask(*arguments: str, code: int = 0, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command; it has to end with ``code``."""
    return cli("ask", *arguments, code=code, stdin=stdin)


def searching(asked: Asked) -> Reply:
    """Answer as a model does that looks, searches, asks and submits, by what it is told."""
    told = asked.messages[-1]["content"]
    if asked.messages[0]["role"] != "system":
        return Reply("marmalade" if "marmalade" in told else "unknown")
    if "Nothing has been run yet" in told:
        return Reply("First I look.\n```repl\nprint(context['line_count'], context['content'][:60])\n```")
    if "Turn 2" in told:
        found = "at = context['content'].find('harbour master')\nhit = context['content'][at - 90 : at + 90]"
        return Reply(f"I search.\n```repl\n{found}\nword = llm_query('Name only the code word: ' + hit)\n```")
    return Reply("```repl\nprint(word)\nanswer['content'] = word\nanswer['ready'] = True\n```")


def haystack(path: Path, size: int) -> None:
    """Write a text of ``size`` bytes with one needle after three quarters of it."""
    lines = (size - len(NEEDLE) - 1) // 64
    with path.open("w") as file:
        for number in range(lines):
            if number == lines * 3 // 4:
                file.write(f"{NEEDLE}\n")
            file.write(f"{number:010} nothing of interest was said in this line at all ...\n")


def test_a_needle_is_found_in_a_large_file(daemon: Path, endpoint: ModelEndpoint, tmp_path: Path) -> None:
    """The whole way: file, session, model, code, query, answer; what happens is told on standard error."""
    size = int(os.environ.get("RLM_ASK_MB", "5")) * MB
    haystack(tmp_path / "talk.txt", size)
    endpoint.reply = searching
    done = ask("What is the code word of the harbour master?", str(tmp_path / "talk.txt"))
    assert done.stdout == "marmalade\n"
    assert "turn 2 at = context" in done.stderr
    assert "→ 78125 " in done.stderr
    assert "3 turns, 4 calls" in done.stderr
    longest = max(len(message["content"]) for asked in endpoint.requests for message in asked.messages)
    assert longest < 5000, "the model has read the file"


def test_programs_get_json_and_a_trajectory(daemon: Path, endpoint: ModelEndpoint, tmp_path: Path) -> None:
    """Standard input is a text too; the file holds every turn."""
    endpoint.script(Reply("```repl\nanswer.update(content=context['lines'][1], ready=True)\n```"))
    lines = tmp_path / "run.jsonl"
    done = ask("Second line?", "-", "--json", "--trajectory", str(lines), stdin="one\ntwo\n")
    answer: dict[str, Any] = json.loads(done.stdout)
    assert (answer["answer"], answer["status"], answer["turns"], answer["model"]) == ("two", "answered", 1, "scripted")
    assert [json.loads(line)["type"] for line in lines.read_text().splitlines()] == ["metadata", "iteration"]


def test_limits_end_it_with_exit_code_1(daemon: Path, endpoint: ModelEndpoint) -> None:
    """What was used up is said; a last word without a submission is an answer that is marked."""
    endpoint.reply = lambda _: Reply("```repl\nprint(1)\n```")
    assert "'calls'" in ask("?", "--calls", "1", code=1).stderr
    last = ask("?", "--turns", "1", code=1)
    assert ("used its one turn" in last.stderr, "print(1)" in last.stdout) == (True, True)


def test_what_came_of_each_turn_is_shown(daemon: Path, endpoint: ModelEndpoint) -> None:
    """A refusal or an error as such, in one line."""
    endpoint.script(
        Reply("```repl\nimport subprocess\n```"), Reply("```repl\nprint('seen')\n```"), Reply("FINAL(done)")
    )
    shown = ask("?").stderr.splitlines()
    refused = shown.index("turn 1 import subprocess")
    assert "→ failed: " in shown[refused + 1]
    assert "'subprocess' is not on the allow-list" in shown[refused + 1]
    assert shown[refused + 2 : refused + 4] == ["turn 2 print('seen')", "  → seen"]


def test_a_turn_without_code_is_shown(daemon: Path, endpoint: ModelEndpoint) -> None:
    """A model that only talks is seen to do so, not only at its end."""
    endpoint.reply = lambda _: Reply("I think so.")
    shown = ask("?", "--turns", "2", code=1).stderr
    assert shown.startswith("turn 1 wrote no code\nturn 2 wrote no code\nthe model used all its 2 turns")
    assert shown.endswith(" s\n"), "a session that has ended is of no use to anybody"


def test_ctrl_c_says_how_far_it_got_and_what_is_kept(
    daemon: Path, endpoint: ModelEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 130; the turns that were paid for are in the file."""
    endpoint.reply = lambda asked: Reply("```repl\n1\n```", delay=60.0 if "Turn 2" in asked.prompt else 0.0)
    lines = tmp_path / "run.jsonl"
    run = [sys.executable, "-P", "-m", "rlm_mcp", "ask", "?", "--trajectory", str(lines)]
    process = subprocess.Popen(run, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: len(endpoint.requests) == 2)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "interrupted: the run ended in turn 2 after 2 model calls; its session is deleted; its turns are in" in said
    assert len(lines.read_text().splitlines()) == 2


def test_a_run_that_is_stopped_leaves_its_turns(daemon: Path, endpoint: ModelEndpoint, tmp_path: Path) -> None:
    """What was paid for is kept, with the reason; a file that cannot be written costs no call."""
    endpoint.reply = lambda asked: Reply(
        "```repl\nprint(llm_query('part'))\n```" if asked.prompt != "part" else "whole"
    )
    lines = tmp_path / "run.jsonl"
    assert "'calls'" in ask("?", "--calls", "3", "--trajectory", str(lines), code=1).stderr
    first, *turns = map(json.loads, lines.read_text().splitlines())
    assert "calls of a model is used up" in first["stopped"]
    assert [turn["code_blocks"][0]["result"]["stdout"].strip() for turn in turns][:1] == ["whole"]
    assert turns[0]["code_blocks"][0]["result"]["rlm_calls"][0]["completion_tokens"] == 1
    asked = len(endpoint.requests)
    assert "cannot be written" in ask("?", "--trajectory", str(tmp_path / "no/run.jsonl"), code=1).stderr
    assert len(endpoint.requests) == asked


def test_without_a_model_it_says_how_to_configure_one(daemon: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 4: the machine is not set up for it."""
    monkeypatch.setenv("RLM_KERNEL_CONFIG_DIR", "/nonexistent")
    assert "RLM_KERNEL_MODEL=openai:MODEL" in ask("?", code=4).stderr


def test_a_model_that_is_not_there_is_told_at_once(daemon: Path, endpoint: ModelEndpoint, tmp_path: Path) -> None:
    """One line with what to do; an endpoint that fails for a while is asked again, and that is seen."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        endpoint.configure(tmp_path, base_url=f"http://{address}/v1", retries=20)
        said = ask("?", code=1).stderr.strip()
    assert said.splitlines() == [
        f"rlm-kernel: nothing listens at {address}; start the server, or correct base_url in {tmp_path / 'models.yaml'}"
    ]
    endpoint.configure(tmp_path)
    endpoint.script(Reply("busy [now]", status=503, headers={"retry-after-ms": "5"}), Reply("FINAL(done)"))
    done = ask("?")
    assert done.stdout == "done\n"
    assert "gave no answer: " in done.stderr.splitlines()[0]
    assert done.stderr.splitlines()[0].endswith("busy [now]; attempt 2 of 5 in 0 s")


def test_what_cannot_be_read_is_said(daemon: Path, tmp_path: Path) -> None:
    """A missing file fails before a model is asked; standard input stands alone."""
    assert "missing.txt" in ask("?", str(tmp_path / "missing.txt"), code=1).stderr
    assert "use `-` alone" in ask("?", "-", "more.txt", code=2).stderr
