"""What the shell completes: names of sessions and policies. Nothing is started for it, and no error is shown."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import typer

from rlm_ipc.daemon_connection import ask
from rlm_ipc.discovery import DiscoveryError
from rlm_ipc.errors import KernelError
from rlm_ipc.session_requests import ListSessions

_SECONDS = 2.0


def session_choices(incomplete: str) -> list[str]:
    """Return the names of sessions, open or resting, that begin so; none if no daemon runs."""
    with suppress(KernelError, DiscoveryError, OSError):
        found = ask(ListSessions(), seconds=_SECONDS)
        names = [*(row.session for row in found.sessions), *(row.session for row in found.resting)]
        return [name for name in names if name.startswith(incomplete)]
    return []


def policy_choices(incomplete: str) -> list[str]:
    """Return the names of policies that begin so."""
    from rlm_sandbox.policy import policy_names

    return [name for name in policy_names() if name.startswith(incomplete)]


def session_option(said: str) -> Any:
    """Return the option that names a session."""
    return typer.Option("--session", "-s", help=said, autocompletion=session_choices)


def policy_option(said: str) -> Any:
    """Return the option that names a policy."""
    return typer.Option(help=said, autocompletion=policy_choices, callback=_not_empty)


def _not_empty(policy: str | None) -> str | None:
    """Refuse an empty name, such as an unset variable of a shell gives: the default may permit more than was meant."""
    if policy == "":
        raise typer.BadParameter("it is empty; name a policy, or leave the option out")
    return policy
