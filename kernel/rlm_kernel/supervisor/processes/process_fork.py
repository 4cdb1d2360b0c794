"""Making a kernel process fork."""

from __future__ import annotations

from rlm_ipc import framing, worker_protocol
from rlm_ipc.worker_protocol import ForkState
from rlm_kernel.supervisor.keeping.held_pipes import Space
from rlm_kernel.supervisor.processes.patience import answered, retrieved
from rlm_kernel.supervisor.processes.worker_link import ForkRefused, PeerDied, WorkerLink, heard


async def fork(
    parent: WorkerLink,
    state: ForkState,
    seconds: float,
    *,
    leave_threads: bool = False,
    asleep: bool = False,
    private: bool = False,
) -> WorkerLink:
    """Make ``parent`` fork a child.

    A process with threads is refused unless ``leave_threads``, because the child has only the thread that forked. An
    ``asleep`` child says nothing and touches no page until its first message. A ``private`` child gets a pid namespace
    of its own, or shares its parent's. Raises `ForkRefused`, `PeerDied` or TimeoutError; then no process is left.
    """
    try:
        space = Space() if private else parent.space and parent.space.share()
    except OSError as error:
        raise ForkRefused(str(error), errno=error.errno) from error
    try:
        ours, theirs = framing.lifelines()
    except OSError as error:
        if space is not None:
            space.release()
        raise ForkRefused(str(error), errno=error.errno) from error
    child = WorkerLink(ours, parent.keeping, parent.unfinished, space, parent)
    child.begin(asleep=asleep)
    handshake, forked = child.expect(worker_protocol.Handshake.TAG), parent.expect(worker_protocol.Forked.TAG)
    handshake.add_done_callback(retrieved)
    pin = (space.hand_over(),) if private and space else ()
    request = worker_protocol.Fork(state, leave_threads, asleep, private=bool(pin))
    parent.say(request, (theirs.detach(), *pin))
    try:
        answer = heard(worker_protocol.Forked, await answered(forked, seconds, parent.pid)) or worker_protocol.Forked()
        if answer.error is not None:
            raise ForkRefused(answer.error, answer.threads, answer.errno)
        if not asleep or space is not None:
            await answered(handshake, seconds, answer.pid)
        elif not child.watch(answer.pid):
            raise ForkRefused("the copy ended before it started")
    except PeerDied as error:
        child.drop()
        if parent.dead:
            raise
        raise ForkRefused("the copy ended before it started") from error
    except BaseException:
        child.drop()
        raise
    if state is ForkState.DORMANT:
        child.keep_process()
    return child
