"""Folders that a wheel carries in its package, and a checkout at its top."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent


def shipped(name: str) -> Path:
    """Return the folder ``docs`` or ``skills`` of this version: in the installed package, else in the checkout."""
    installed = _PACKAGE / name
    return installed if installed.is_dir() else _PACKAGE.parents[1] / name
