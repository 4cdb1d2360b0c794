"""The daemon's process: one per user, which serves MCP to every front over a unix socket.

Started by the first front (or by ``rlm-kernel daemon start``), it takes the claim for its socket path,
opens the service, listens, and exits after a while without connections. SIGTERM and SIGINT shut it down cleanly.

The supervisor starts in parallel and takes about as long, so it is started first: this module imports little, and the
rest of the daemon is imported after that.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import os
import sys
import threading
from collections.abc import Iterator, Sequence

from rlm_ipc import discovery, processes
from rlm_kernel.supervisor_start import connect_socket

DEFAULT_SERVER = "rlm_mcp.daemon.served:create"
"""Import string of a function without arguments that returns an async context manager, which yields a `Served`."""
_JOIN_SECONDS = 10.0
"""How long the daemon, when it ends, waits for a supervisor that is being started."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a daemon. Return the exit status."""
    options = _options(argv)
    if not options.foreground:
        discovery.detach()
    os.umask(0o077)
    faulthandler.enable()
    processes.begin_startup()
    try:
        with (
            discovery.claim_to_serve(options.socket, options.ready_fd) as claim,
            _claimed_state(options.server),
            _supervisor_beside(options.server),
        ):
            from rlm_mcp.daemon.daemon import run

            return run(options.server, options.socket, options.idle, claim, options.ready_fd)
    except discovery.AlreadyServed:
        return 0
    except discovery.DiscoveryError as error:
        print(f"rlm-kernel daemon: {error}", file=sys.stderr)
        return 1


def _claimed_state(server: str) -> contextlib.AbstractContextManager[object]:
    """Become the only daemon of the database and texts: two would end each other's sessions.

    The claim for the socket does not ensure that, because another daemon may use another folder for its socket.
    """
    if server != DEFAULT_SERVER:
        return contextlib.nullcontext()
    state = discovery.state_folder()
    try:
        return discovery.claim(os.path.join(state, "daemon"))
    except discovery.DiscoveryError:
        raise discovery.DiscoveryError(
            f"another daemon works on {state}, with its sockets in another folder than {discovery.runtime_folder()}",
            "set RLM_KERNEL_RUNTIME_DIR (or XDG_RUNTIME_DIR, or TMPDIR) as it is set there, "
            "or RLM_KERNEL_STATE_DIR to another folder",
        ) from None
    except OSError:  # for example a full disk, with which a daemon must be able to start
        return contextlib.nullcontext()


@contextlib.contextmanager
def _supervisor_beside(server: str) -> Iterator[None]:
    """Start the supervisor while this process imports its modules.

    A later connection starts it if this fails, and reports the reason if that fails, too.
    """
    if server != DEFAULT_SERVER:
        yield
        return
    starter = threading.Thread(target=_start_supervisor, daemon=True)
    starter.start()
    try:
        yield
    finally:
        starter.join(_JOIN_SECONDS)  # it may hold the lock on the start of a supervisor


def _start_supervisor() -> None:
    with contextlib.suppress(discovery.DiscoveryError, OSError):
        if (line := connect_socket(f"{discovery.runtime_folder()}/supervisor.sock", start=True)) is not None:
            line.close()


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="rlm-kernel-daemon", description="Serve MCP at a unix socket.")
    parser.add_argument("socket", help="where to listen")
    parser.add_argument("--server", default=DEFAULT_SERVER, help="MODULE:FUNCTION that makes what is served")
    parser.add_argument("--idle", type=float, help="seconds to stay without a client")
    parser.add_argument("--ready-fd", type=int, help="descriptor to write a byte to when listening")
    parser.add_argument("--foreground", action="store_true", help="stay a child of the starter")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
