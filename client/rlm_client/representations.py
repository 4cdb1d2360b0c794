"""The representations of clients at a prompt and in a notebook."""

from __future__ import annotations

__all__ = ["shown", "shown_html"]


def shown(kind: str, session: str | None, policy: str | None) -> str:
    """Return the repr of a client."""
    named = [] if session is None else [repr(session)]
    return f"{kind}({', '.join(named + ([] if policy is None else [f'policy={policy!r}']))})"


def shown_html(session: str | None, policy: str | None) -> str:
    """Return a client as a notebook shows it."""
    import html  # not before a daemon starts

    name = f"session <code>{html.escape(session)}</code>" if session else "the session of this folder"
    under = f", policy <code>{html.escape(policy)}</code>" if policy else ""
    return f"<p>A client of {name}{under}</p>"
