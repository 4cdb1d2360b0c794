"""The program that a client's hook starts: it passes the event on and prints what the client is to be told.

    PYTHON -I -S -c "import sys; sys.path.append(PACKAGES); from rlm_mcp.hook.program import run; run(sys.argv[1:])"
        FOLDER CLIENT EVENT

It always exits with status 0: clients treat 2, and one of them also 1, as a refusal of the call, and our errors must
not stop an agent. A write is refused only by the client's own JSON, which the daemon writes.

``FOLDER`` is the daemon's folder for hooks: ``daemon`` in it leads to the socket of the daemon that runs, ``spool``
takes events when none answers in time, and ``prime`` holds what is printed where a client begins. The program starts
no daemon.

Starting Python without ``site`` is half of the cost, so only built-in modules are imported: neither ``os`` nor
``json``. The program does not parse the event; the daemon does (`rlm_mcp.hook.reading`).
"""

import posix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

PROTOCOL = 1
"""That of `rlm_ipc.json_lines`; a test compares the two."""
ANSWER_SECONDS = 0.025
"""How long a daemon may take; then the agent continues without it."""
WHOLE_SECONDS = 1.0
"""How long the program may take, including the wait for the client's event."""
LARGEST_WHOLE = 256 * 1024
"""Bytes of an event that is passed on as it came; the long texts of a larger one are cut."""
LARGEST = 32 * 1024 * 1024
LARGEST_SPOOL = 16 * 1024 * 1024
"""Bytes of the spool from which on events are dropped: no daemon has read it for long."""
MOST_ANCESTORS = 8
PRIMED = ("SessionStart", "sessionStart", "SubagentStart", "subagentStart", "BeforeAgent")
"""Events at which a client is told where it was: it begins, or has forgotten what it knew.

``BeforeAgent`` is a prompt to Gemini, which has no event after a compaction.
"""
ASKED = ("PreToolUse", "BeforeTool", "preToolUse")
"""Events that only ask: a later daemon need not get them."""


def main(folder: str, client: str, event: str) -> None:
    """Pass on the event from standard input, and print the answer for the client."""
    given = _read()
    tree = _tree() if event in PRIMED else ""
    request = _request(client, event, given)
    posix.chdir(folder)  # whatever the folder is called, the address of the socket is short
    told = _ask(request)
    if told is None and (event not in ASKED or client == "codex"):
        _spool(request)  # Codex tells of a patch that a shell applies before it does, and not again
    if tree and not told:
        told = _primed(client, event, tree)
    if told:
        posix.write(1, told.encode())


def _read() -> str:
    given = bytearray()
    while chunk := posix.read(0, 65536):
        if len(given) <= LARGEST:
            given += chunk
    if len(given) > LARGEST_WHOLE:
        from rlm_mcp.hook.cutting import cut

        return cut(given, LARGEST)
    return given.decode("utf-8", "replace")


def _request(client: str, event: str, given: str) -> bytes:
    """Write the event as the daemon's protocol has it (`rlm_ipc.daemon_protocol.NoteHook`), on one line."""
    import time
    from _json import encode_basestring_ascii as quoted

    now = time.time_ns()
    ancestors = ",".join(f'{{"pid":{pid},"started":{started}}}' for pid, started in _ancestors())
    return (
        f'{{"client":{quoted(client)},"event":{quoted(event)},"given":{quoted(given)},"at":{now / 1e9:.6f},'
        f'"id":"{posix.getpid()}-{now}","ancestors":[{ancestors}]}}'
    ).encode()


def _ancestors() -> list[tuple[int, int]]:
    """List the processes above this one, with when each has started: a number may have been another's before."""
    found: list[tuple[int, int]] = []
    pid = posix.getppid()
    try:
        while pid > 1 and len(found) < MOST_ANCESTORS:
            fields = _content(f"/proc/{pid}/stat").rpartition(b")")[2].split()
            found.append((pid, int(fields[19])))
            pid = int(fields[1])
    except (OSError, ValueError, IndexError):
        found.append((pid, 0))
    return found


def _content(path: str) -> bytes:
    file = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    try:
        content = bytearray()
        while chunk := posix.read(file, 65536):
            content += chunk
    finally:
        posix.close(file)
    return bytes(content)


# --- the daemon, or else its spool ----------------------------------------------------------------


def _ask(request: bytes) -> str | None:
    """Return what the daemon has to say to the client; None: no daemon has taken the event in time."""
    import _socket
    import time

    end = time.monotonic() + ANSWER_SECONDS
    line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    head = f'{{"rlm":{PROTOCOL},"role":"hook","pid":{posix.getpid()},"bytes":{len(request)}}}\n'
    answer = bytearray()
    try:
        line.settimeout(ANSWER_SECONDS)
        line.connect("daemon")
        line.settimeout(max(end - time.monotonic(), 0.001))
        line.sendall(head.encode() + request)
        while b"\n" not in answer:
            line.settimeout(max(end - time.monotonic(), 0.001))
            chunk = line.recv(65536)
            if not chunk:
                break
            answer += chunk
    except OSError:
        return None
    # Without a newline the daemon ended during its answer.
    return _told(answer.decode("utf-8", "replace")) if answer.endswith(b"\n") else None


def _told(answer: str) -> str | None:
    """Read the field ``output`` of the daemon's answer; None: it is a refusal."""
    from _json import scanstring

    at = answer.find('"output": "')
    return scanstring(answer, at + len('"output": "'))[0] if at > 0 else None


def _spool(request: bytes) -> None:
    """Append the event, by one write: nobody who writes at the same time can cut it in two.

    It begins on a line of its own, whatever a full disk has left of the one before.
    """
    flags = posix.O_WRONLY | posix.O_CREAT | posix.O_APPEND | posix.O_CLOEXEC | posix.O_NOFOLLOW
    file = posix.open("spool", flags, 0o600)
    if posix.fstat(file).st_size < LARGEST_SPOOL:
        posix.write(file, b"\n" + request + b"\n")


# --- where was I ----------------------------------------------------------------------------------


def _tree() -> str:
    """Return the tree of the working directory, as `rlm_memory.places.tree_of` does; this leaves the directory."""
    here = posix.getcwd()
    place = here
    while True:
        if _enters(f"{place}/.git"):
            return posix.getcwd()
        if not place or place == "/":
            return here
        place = place.rpartition("/")[0]


def _enters(git: str) -> bool:
    """Go to the folder that all worktrees of a repository share, if ``git`` leads to one."""
    try:
        posix.chdir(git)
    except NotADirectoryError:
        return _follows(git)
    except OSError:
        return False
    return True


def _follows(git: str) -> bool:
    """Go where a ``.git`` file of a worktree or a submodule leads; a submodule shares its folder with nobody."""
    try:
        said = _content(git).decode("utf-8", "surrogateescape").strip()
        if not said.startswith("gitdir:"):
            return False
        posix.chdir(git.rpartition("/")[0] or "/")
        posix.chdir(said.removeprefix("gitdir:").strip())
    except OSError:
        return False
    try:
        common = _content("commondir").decode("utf-8", "surrogateescape").strip()
    except OSError:
        return True
    try:
        posix.chdir(common)
    except OSError:
        return False
    return True


def _primed(client: str, event: str, tree: str) -> str:
    """Return what the daemon has written down for that tree, as the client takes it. The file holds a JSON string."""
    try:
        text = _content(f"prime{tree}/prime.json").decode()
    except OSError:
        return ""
    if client == "copilot-cli":
        return f'{{"additionalContext":{text}}}'
    return f'{{"hookSpecificOutput":{{"hookEventName":"{event}","additionalContext":{text}}}}}'


def run(arguments: "Sequence[str]") -> None:
    """Do it, and end the process with status 0."""
    try:
        import _signal  # type: ignore[import-not-found]  # the stubs know it as `signal` only

        _signal.signal(_signal.SIGALRM, lambda *_: posix._exit(0))
        _signal.setitimer(_signal.ITIMER_REAL, WHOLE_SECONDS)
        main(*arguments)
    except BaseException:
        pass  # whatever it is, the agent continues
    posix._exit(0)
