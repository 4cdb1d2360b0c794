"""The example that each command's help ends with, as a newcomer runs it: one after the other, in one folder."""

import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from command_line import answer, cli
from command_tree import examples
from model_endpoint import ModelEndpoint, Reply

ELSEWHERE = {"demo", "tour", "open", "web", "serve"}
"""They run for long, or until somebody interrupts them, and have tests of their own."""


class Newcomer:
    """Types examples. ``ids`` has what stands on this machine in place of an id of the examples."""

    def __init__(self) -> None:
        self.examples, self.ids = examples(), {"$$": str(os.getpid())}
        self.left = set(self.examples) - ELSEWHERE

    def types(self, *commands: str, stdin: str = "") -> None:
        """Run the examples of these commands; each has to succeed."""
        for command in commands:
            self.left.remove(command)
            cli(*(self.ids.get(word, word) for word in shlex.split(self.examples[command])), stdin=stdin)


@pytest.fixture
def newcomer(
    daemon: Path, endpoint: ModelEndpoint, isolation: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Newcomer:
    """A repository with what the examples name, a model, and an agent that hands its task in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    endpoint.configure(isolation.config)
    endpoint.reply = lambda _: Reply("```repl\nanswer.update(content='the disk', ready=True)\n```")
    files: Mapping[str, str] = {
        "app.log": "10:00 ERROR the disk is full\n",
        "mine.yaml": "extends: default\n",
        ".rlm/skills/own/SKILL.md": "---\nname: own\ndescription: Ours. Use when asked.\n---\nDo it.\n",
        ".beads/issues.jsonl": '{"id": "b-1", "title": "task", "status": "open", "priority": 1}\n',
        "bin/claude": "#!/bin/sh\nset -- $2\nexec rlm-kernel work handoff $6 --summary done\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "bin" / "claude").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{daemon.parent}:/usr/bin:/bin")
    subprocess.run(["git", "init", "-q"], check=True)
    return Newcomer()


def test_every_example_of_the_help_works(newcomer: Newcomer) -> None:
    """In the order in which one comes to them; what an example needs is made by those before it."""
    own = (Path.cwd() / ".mcp.json", '{"mcpServers": {"other": {}}}')
    own[0].write_text(own[1])
    newcomer.types("doctor", "docs", "config", "skill", "mcp", "daemon start", "daemon status")
    assert own[0].read_text() == own[1], "an example has overwritten what the user had"
    newcomer.types("load", "run", "query", "refresh", "ask", "sessions", "journal", "top")
    cli("run", "llm_query('?')", "--session", "work")
    newcomer.types("answer", "fork", "end", "save", "restore", "export", "replay", "policy apply", "attachments add")
    newcomer.ids["0b8e38bef9b5"] = answer("attachments", "list")["attachments"][0]["attachment"]
    newcomer.types("attachments list", "attachments revoke", "policy list", "policy show", "policy check")
    newcomer.types("policy schema", "skills list", "skills show", "skills lint", "lock", "upgrade")
    newcomer.types("hook", stdin="{}")
    newcomer.types("plan", "push", "tree")
    newcomer.ids["f3"] = next(
        row["id"] for row in answer("tree")["frames"] if row["goal"] == "read the log" and row["started_at"]
    )
    newcomer.types("frame", "pop", "log")
    newcomer.ids["f2"] = epic = answer("work", "add", "epic", "--kind", "epic")["added"]
    newcomer.ids["f5"] = answer("work", "add", "task", "--parent", epic)["added"]
    newcomer.types("work add", "work import", "work export", "work list", "work next", "work claim", "work renew")
    newcomer.types("work release", "work done", "work handoff")
    cli("work", "add", "another", "--parent", epic)
    newcomer.types("work run", "metrics", "prime", "daemon stop")
    assert not newcomer.left
