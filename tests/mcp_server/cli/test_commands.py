"""The command line as a person or a script uses it: real processes, exit codes, text and JSON."""

import asyncio
import json
import os
import pty
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from command_line import answer, cli
from waiting import wait_until

from rlm_client.client import Client, call_tool
from rlm_ipc import discovery
from rlm_ipc.daemon_connection import DaemonConnection
from rlm_ipc.daemon_requests import ServeHttp
from rlm_ipc.json_lines import MADE_BY, TERMINAL, hooks_folder, socket_path
from rlm_kernel.jupyter import kernelspecs
from rlm_mcp.service.hooks.folder import HookFolder
from rlm_memory.places import tree_of

RUN = [sys.executable, "-P", "-m", "rlm_mcp"]


def on_a_terminal(*arguments: str, **environment: str) -> bytes:
    """Run a command on a terminal; returns all that it shows, which comes in pieces and after the command's end."""
    reader, terminal = pty.openpty()
    shown = b""
    with os.fdopen(reader, "rb", buffering=0) as screen:
        with subprocess.Popen([*RUN, *arguments], stdout=terminal, env={**os.environ, **environment}) as command:
            os.close(terminal)
            with suppress(OSError):  # how Linux says that nobody has the terminal any more
                while piece := screen.read(65536):
                    shown += piece
        assert command.returncode == 0
    return shown


# --- the daemon -----------------------------------------------------------------------------------


def test_the_daemon_is_shown_and_stopped(daemons: Any, gone: Any) -> None:
    """Status tells process and clients; stop waits until it has ended; both say so when there is none."""
    assert answer("daemon", "status", code=3) == {"running": False}
    assert "daemon start" in cli("daemon", "status", code=3).stderr
    pid = daemons.start()
    status = answer("daemon", "status")
    assert (status["running"], status["pid"], status["clients"]) == (True, pid, 0)
    assert answer("daemon", "start")["pid"] == pid
    assert answer("daemon", "stop") == {"stopped": True, "pid": pid}
    asyncio.run(gone(pid))
    assert answer("daemon", "stop") == {"stopped": False}


def test_stopping_everything_leaves_nothing_of_the_supervisor_behind(isolation: Any) -> None:
    """After `daemon stop --all` the runtime folder has no kernel's files; what is not ours stays."""
    cli("run", "1", "--session", "s")
    runtime = discovery.runtime_dir()
    assert list((runtime / "connections").iterdir())
    (runtime / "other").write_text("")
    assert list(kernelspecs.published())
    assert cli("daemon", "stop").stdout.splitlines()[1].startswith("1 kernel keeps running; to end every kernel: ")
    assert list(kernelspecs.published())  # without a daemon, too, a notebook comes to the kernel
    assert cli("daemon", "stop", "--all").stdout == "no daemon is running\nended the supervisor and every kernel\n"
    left = {file.name for file in runtime.iterdir()}
    assert not left & {"connections", "scratch", "k", "supervisor.sock"}
    assert "other" in left
    assert not list(kernelspecs.published())


@pytest.mark.usefixtures("ended")
def test_a_daemon_that_cannot_list_its_sessions_is_stopped(isolation: Any) -> None:
    """Its database may be damaged, so the supervisor is asked how many kernels there are."""
    cli("run", "1", "--session", "s")
    pid = answer("daemon", "status")["pid"]
    with closing(sqlite3.connect(isolation.state / "rlm.sqlite3")) as database:
        database.execute("DROP TABLE contexts")
    cli("sessions", code=1)
    stopped, kept = cli("daemon", "stop").stdout.splitlines()
    assert (stopped, kept.partition(";")[0]) == (f"stopped process {pid}", "1 kernel keeps running")


def test_a_person_at_a_terminal_is_asked_before_every_kernel_ends(isolation: Any) -> None:
    """What is saved comes back; the daemon ends first, as it would start another supervisor for whoever calls."""

    def stop(said: str, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
        keyboard, terminal = pty.openpty()
        try:
            os.write(keyboard, said.encode())
            command = [*RUN, "daemon", "stop", "--all", *arguments]
            return subprocess.run(command, stdin=terminal, capture_output=True, check=False)
        finally:
            os.close(keyboard)
            os.close(terminal)

    cli("run", "kept = 41", "--session", "s")
    refused = stop("n\n")
    assert (refused.returncode, b"End 1 kernel?" in refused.stderr) == (1, True)
    assert cli("run", "kept += 1", "--session", "s").stderr == ""
    cli("daemon", "stop")
    refused = stop("n\n")
    assert (refused.returncode, b"End 1 kernel?" in refused.stderr) == (1, True)  # although no daemon counts them
    done = stop("", "--yes")
    assert (done.returncode, done.stdout.splitlines()[1]) == (0, b"ended the supervisor and every kernel")
    assert cli("run", "kept", "--session", "s").stdout == "42\n"
    made = cli("run", "open('out.csv', 'w').close()", "--session", "s")
    assert made.stderr.startswith("new file: /")
    assert made.stderr.endswith("/out.csv\n")
    assert stop("y\n").returncode == 0
    assert stop("").stdout == b"no daemon is running\n"
    with closing(socket.socket(socket.AF_UNIX)) as silent:
        silent.bind(str(discovery.runtime_dir() / "supervisor.sock"))
        silent.listen()
        refused = stop("n\n")
    assert (refused.returncode, b"End every kernel?" in refused.stderr) == (1, True)


def test_only_clients_of_tools_are_counted(isolation: Any) -> None:
    """A web page, HTTP and a status are connections, too."""
    with DaemonConnection(ServeHttp(port=0), start=True):
        assert answer("daemon", "status")["clients"] == 0
        with Client("s") as client:
            client.call("list_vars")
            assert answer("daemon", "status")["clients"] == 1
        wait_until(lambda: answer("daemon", "status")["clients"] == 0)
    cli("daemon", "stop", "--all")


def test_a_daemon_that_runs_keeps_its_idle_time_and_says_so(daemons: Any) -> None:
    """Whoever asks for another one would wait for an end that does not come."""
    daemons.start("--idle", "600")
    assert "keeps its idle time of 600 s; to change it: rlm-kernel daemon stop" in " ".join(
        cli("daemon", "start", "--idle", "5").stdout.split()
    )
    for asked in ((), ("--idle", "600")):
        assert "idle" not in cli("daemon", "start", *asked).stdout


@pytest.mark.usefixtures("isolation")
@pytest.mark.parametrize("code", ["", " \n"])
def test_nothing_to_run_is_a_mistake(code: str) -> None:
    """A pipe whose first part has failed would look like a success."""
    assert "there is no code to run" in cli("run", code=2, stdin=code).stderr
    cli("daemon", "status", code=3)


def test_a_daemon_without_clients_ends_by_itself(daemons: Any) -> None:
    """After the idle time it stops in order: socket and claim are gone."""
    daemons.start("--idle", "1")
    wait_until(lambda: not Path(daemons.path).exists())


@pytest.fixture(scope="module")
def running(shared_daemon: Any) -> Any:
    """Give a running daemon that is left alone."""
    return shared_daemon


def test_serve_holds_the_attachment_open_until_interrupted(running: Any) -> None:
    """`rlm-kernel serve` prints URL and token file, and Ctrl-C ends it with exit code 0."""
    process = subprocess.Popen([*RUN, "serve", "--port", "0", "--json"], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            text += process.stdout.readline()
        attachment = json.loads(text)
        assert attachment["url"].startswith("http://127.0.0.1:")
        assert Path(attachment["token_file"]).stat().st_mode & 0o077 == 0
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_serve_refuses_the_world(running: Any) -> None:
    """An address that others can reach is refused with the way to do it."""
    assert "SSH tunnel" in cli("serve", "--host", "0.0.0.0", code=2).stderr


def test_a_taken_port_is_a_failure_and_not_the_daemons(running: Any) -> None:
    """Exit code 1: nothing is wrong with the usage or the daemon, but this port is taken."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert "choose another --port" in cli("serve", "--port", str(other.getsockname()[1]), code=1).stderr


# --- work through MCP -----------------------------------------------------------------------------


def test_run_prints_what_the_code_prints(running: Any) -> None:
    """K-15: code as an argument or on standard input, in the session that is named."""
    assert cli("run", "print(1)").stdout == "print(1)"
    assert cli("run", "-", stdin="2 + 2").stdout == "2 + 2"
    result = answer("run", "x", "--session", "ses_a")
    assert result["env"] == {"PARENT_SESSION_ID": "ses_a", MADE_BY: TERMINAL}
    assert result["success"] is True


def test_run_fails_when_the_code_does(running: Any) -> None:
    """Exit code 1, and the error on standard error."""
    assert "Boom" in cli("run", "raise", code=1).stderr
    assert answer("run", "raise", code=1)["success"] is False


def test_load_sends_a_path_and_not_the_text(running: Any, tmp_path: Path) -> None:
    """K-1: a file is loaded by its path; a missing one is wrong usage, exit code 2."""
    file = tmp_path / "log.txt"
    file.write_text("line\n" * 100)
    assert answer("load", "log", str(file)) == {"name": "log", "size": 500}
    cli("load", "log", str(tmp_path / "missing"), code=2)


def test_load_takes_several_files_standard_input_and_a_commands_output(running: Any, tmp_path: Path) -> None:
    """K-1, ours: the daemon gets paths; what stands on standard input or is printed goes through a file."""
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("12345")
    assert answer("load", "two", str(tmp_path / "a.txt"), str(tmp_path / "b.txt"))["size"] == 10
    assert json.loads(cli("load", "log", "-", "--json", stdin="line\n" * 10).stdout) == {"name": "log", "size": 50}
    assert answer("load", "made", "--command", "printf 12; printf 3 >&2; exit 3") == {"name": "made", "size": 3}
    for wrong in (["log"], ["log", "-", "x"], ["log", str(tmp_path), "--command", "true"]):
        cli("load", *wrong, code=2)


def test_sessions_are_listed_or_one_is_shown(running: Any) -> None:
    """All sessions as a table, whatever their names hold, or one with its state."""
    text = cli("sessions").stdout
    assert "default" in text
    assert "[x]" in text
    assert answer("sessions", "ses_b")["env"] == {"PARENT_SESSION_ID": "ses_b"}


def test_a_table_breaks_its_last_column_only_and_none_in_a_pipe(running: Any) -> None:
    """On 80 columns a long path takes several lines, names and times stand whole; a program gets a line a row."""
    [head, row, _] = cli("sessions").stdout.splitlines()
    assert head.split() == ["session", "policy", "kernel", "texts", "last", "used", "workspace"]
    assert row.endswith("a-folder/" * 20)
    lines = on_a_terminal("sessions", COLUMNS="80", NO_COLOR="1", TERM="dumb").decode().splitlines()
    assert max(map(len, lines)) <= 80
    [first] = [line for line in lines if line.startswith("ses_b")]
    assert first.split()[1:6] == ["[x]", "not", "started", "2", "(2"]


def test_a_locale_without_the_character_shows_its_number(running: Any) -> None:
    """Printing fails in no locale; what it cannot write is escaped."""
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([*RUN, "run", "\u00e4\u2192"], capture_output=True, env=environment, check=True)
    assert done.stdout == b"\xe4\\u2192"


def test_a_terminal_is_not_obeyed(running: Any) -> None:
    """What code prints could set the title, the colours or the clipboard: on a terminal it is escaped."""
    assert cli("run", "\x1b]0;title\x07").stdout == "\x1b]0;title\x07"
    assert on_a_terminal("run", "\x1b]0;title\x07") == b"\\x1b]0;title\\x07"
    shown = on_a_terminal("run", "\x9b31m\x7f", "--json").decode()  # which JSON may leave as they are
    assert "\\u009b31m\\u007f" in shown
    assert json.loads(shown)["stdout"] == "\x9b31m\x7f"


def test_what_an_agent_has_done_does_not_command_a_terminal() -> None:
    """What hooks saw has the names of files and the output of commands in it, and `prime` prints it."""
    folder = HookFolder(Path(hooks_folder(discovery.state_folder())))
    assert folder.write_prime(tree_of(os.getcwd(), ""), "files: \x1b]0;title\x07.py")
    assert on_a_terminal("prime").replace(b"\r\n", b"\n") == b"files: \\x1b]0;title\\x07.py\n"
    assert cli("prime").stdout == "files: \x1b]0;title\x07.py\n"


def test_code_that_is_no_text_is_refused(running: Any) -> None:
    """Bytes of another encoding, as an argument or on standard input, are wrong usage."""
    for arguments, given in (([b"\xff"], b""), ([], b"\xff")):
        done = subprocess.run([*RUN, "run", *arguments], input=given, capture_output=True, check=False)
        assert done.returncode == 2
        assert b"save it as UTF-8" in done.stderr


def test_a_command_that_fails_is_told(running: Any) -> None:
    """What it printed is loaded with a word on its exit code; when there is nothing, nothing is loaded."""
    done = cli("load", "log", "--command", "echo some; exit 3", "--session", "s")
    assert "exit code 3" in done.stderr
    assert "size: 5" in done.stdout
    assert "nothing was loaded" in cli("load", "log", "--command", "exit 3", "--session", "s", code=1).stderr


def test_a_policys_path_is_the_clients(running: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon runs in another folder; so a relative path reaches it as an absolute one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLM_KERNEL_POLICY", "rules.yaml")
    assert answer("run", "x")["env"] == {"RLM_KERNEL_POLICY": str(tmp_path / "rules.yaml"), MADE_BY: TERMINAL}
    assert call_tool("status", {}, policy="sub/../mine.yml")["env"]["RLM_KERNEL_POLICY"] == str(tmp_path / "mine.yml")


def test_a_session_that_is_not_there_is_not_made(running: Any) -> None:
    """Looking is no first call: a name that is not listed is told with those that are."""
    assert "there is no open session 'ses_c'; open sessions: a, ses_b" in cli("sessions", "ses_c", code=1).stderr


def test_a_snapshot_file_that_is_not_there_is_told(isolation: Any, tmp_path: Path) -> None:
    """A path that is mistyped is no name of a session."""
    file = str(tmp_path / "work.rlmsnap")
    assert f"there is no file {file}" in cli("restore", file, code=1).stderr


def test_a_tools_error_is_the_commands_error(running: Any, tmp_path: Path) -> None:
    """What the tool said and what it advises is on standard error, exit code 1."""
    file = tmp_path / "log.txt"
    file.write_text("")
    assert "'class' is a keyword; use 'klass'" in cli("load", "class", str(file), code=1).stderr
    assert answer("load", "class", str(file), code=1)["error"] == "invalid_name"


# --- policies -------------------------------------------------------------------------------------


def test_policies_are_listed_and_shown() -> None:
    """K-28: the four policies by name, with every inherited value in the long form."""
    names = [policy["name"] for policy in answer("policy", "list")["policies"]]
    assert {"default", "strict", "data", "trusted"} <= set(names)
    assert answer("policy", "show", "default")["limits"]["cell_seconds"] == 60.0
    assert "cell_seconds: 60.0" in cli("policy", "show", "default").stdout


def test_a_broken_policy_is_listed_beside_the_good_ones(isolation: Any) -> None:
    """K-28: its row says what is wrong with it; the others are there as ever."""
    folder = discovery.config_dir() / "policies"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("name: mine\ndescription: A test.\nlimits:\n  cell_secs: 5\n")
    rows = {row["name"]: row for row in answer("policy", "list")["policies"]}
    assert "cell_secs" in rows["mine"]["error"]
    assert rows["default"]["description"]
    assert "cell_secs" in cli("policy", "list").stdout


def test_a_policy_file_is_checked_with_line_and_field(tmp_path: Path) -> None:
    """K-28: a mistake is found before a session starts; exit code 1 and where it is."""
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text("name: good\ndescription: A test.\nextends: default\nlimits:\n  cell_seconds: 5\n")
    bad.write_text("name: bad\ndescription: A test.\nlimits:\n  cell_secs: 5\n")
    assert answer("policy", "check", str(good))["valid"] is True
    error = cli("policy", "check", str(bad), code=1).stderr
    assert f"{bad}:4" in error
    assert "cell_secs" in error
    assert "cell_secs" in answer("policy", "check", str(bad), code=1)["error"]


def test_the_schema_is_a_table_or_json() -> None:
    """K-28: every field with its default and meaning, or the JSON schema for editors."""
    assert answer("policy", "schema")["type"] == "object"
    assert "limits.cell_seconds" in cli("policy", "schema").stdout


def test_an_unknown_policy_lists_the_known_ones() -> None:
    """The message says which there are."""
    assert "default" in cli("policy", "show", "nope", code=1).stderr


# --- the rest -------------------------------------------------------------------------------------


def test_an_unusable_folder_is_the_machines_fault(isolation: Any) -> None:
    """Exit code 4 and the command that repairs it."""
    isolation.runtime.chmod(0o777)
    assert "chmod 700" in cli("daemon", "status", code=4).stderr


@pytest.mark.parametrize("said", ["HTTP/1.1 400 Bad Request\n", "[]\n"])
def test_what_is_no_daemon_is_told(isolation: Any, said: str) -> None:
    """Exit code 3 when something else listens at the daemon's address."""
    address = socket_path(discovery.runtime_folder())

    def answer_once(server: socket.socket) -> None:
        client, _ = server.accept()
        with client:
            client.recv(4096)
            client.sendall(said.encode())

    with discovery.listen(address) as server:
        impostor = threading.Thread(target=answer_once, args=(server,))
        impostor.start()
        assert "is not an rlm-kernel daemon" in cli("daemon", "status", code=3).stderr
        impostor.join()


def test_the_version_is_the_packages() -> None:
    """The constant that the front can afford says the same as pyproject.toml."""
    from rlm_ipc.version import VERSION

    pyproject = Path(__file__).parents[3] / "pyproject.toml"
    assert f'\nversion = "{VERSION}"\n' in pyproject.read_text()


# --- the documentation ----------------------------------------------------------------------------


def test_the_pages_of_the_documentation_are_listed_and_printed() -> None:
    """Who has installed a wheel has no checkout, and errors name these pages."""
    titles = answer("docs")
    assert {"queries", "trackers", "tour", "security", "limitations"} < titles.keys()
    assert titles["security"] == "Security"
    page = (Path(__file__).parents[3] / "docs/queries.md").read_text("utf-8")
    assert cli("docs", "queries").stdout == page
    assert answer("docs", "docs/Queries.md") == {"page": "queries", "content": page}
    assert "choose one of" in cli("docs", "../README", code=2).stderr


def test_a_page_is_shown_as_text_on_a_terminal() -> None:
    """A person reads headings and tables, not Markdown."""
    shown = on_a_terminal("docs", "web").decode()
    assert "The web page" in shown
    assert "# The web page" not in shown
