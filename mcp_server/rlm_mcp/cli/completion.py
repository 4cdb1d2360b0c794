"""Shell completion of session and policy names. It starts no daemon and shows no errors."""

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
    """Return the names of open and suspended sessions with this prefix; none if no daemon is running."""
    with suppress(KernelError, DiscoveryError, OSError):
        rows = ask(ListSessions(), seconds=_SECONDS)
        names = [*(row.session for row in rows.sessions), *(row.session for row in rows.resting)]
        return [name for name in names if name.startswith(incomplete)]
    return []


def policy_choices(incomplete: str) -> list[str]:
    """Return the names of policies with this prefix."""
    from rlm_sandbox.policy import policy_names

    return [name for name in policy_names() if name.startswith(incomplete)]


def session_option(help_text: str) -> Any:
    """Return the option that names a session."""
    return typer.Option("--session", "-s", help=help_text, autocompletion=session_choices)


def policy_option(help_text: str) -> Any:
    """Return the option that names a policy."""
    return typer.Option(help=help_text, autocompletion=policy_choices, callback=_not_empty)


def _not_empty(policy: str | None) -> str | None:
    """Refuse an empty name, for example from an unset shell variable: the default may permit more than intended."""
    if policy == "":
        raise typer.BadParameter("it is empty; name a policy or omit the option")
    return policy
