"""What replaced functions need from the wall in force: one wall per process, so one place to find it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final


def _no_wall(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("no language wall stands in this process: create a LanguageWall first")


class WallInForce:
    """Filled in by ``LanguageWall``."""

    open: Callable[..., Any] = staticmethod(_no_wall)
    """Open a file within the policy's paths."""
    evaluate: Callable[..., Any] = staticmethod(_no_wall)
    """Evaluate the text of an annotation, or of a formula and its variables, under the policy."""
    module: Callable[..., Any] = staticmethod(_no_wall)
    """Import a module of the policy's allow-list."""
    stream: type = object
    """The class of the stand-in for a stream of the session."""
    stands: bool = False
    """Whether a language wall is active in this process."""


IN_FORCE: Final = WallInForce()
