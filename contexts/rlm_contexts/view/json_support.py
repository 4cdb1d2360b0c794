"""Let the json module write Lines as the list they stand for.

The module has no registry of types: its encoders call a function, `default`, for what they do not know.  That function
is often the user's (`json.dumps(log, default=str)`) and would turn all lines into one string, so Lines are handled
before it is called.  This is set up once, in the kernel process only.
"""

from __future__ import annotations

import json.encoder
from collections.abc import Callable
from typing import Any

from rlm_contexts.text.lines import Lines

Default = Callable[[Any], Any]

_MAKERS = {name: vars(json.encoder)[name] for name in ("c_make_encoder", "_make_iterencode")}


def _knowing_lines(make: Callable[..., Any]) -> Callable[..., Any]:
    """Return an encoder factory whose `default` is not called for Lines."""

    def made(markers: Any, default: Default, *rest: Any, **options: Any) -> Any:
        def lines_first(value: Any) -> Any:
            return list(value) if type(value) is Lines else default(value)

        return make(markers, lines_first, *rest, **options)

    return made


def support_json() -> None:
    """Teach every encoder of this process about Lines; calling it again changes nothing."""
    if _MAKERS["_make_iterencode"] is vars(json.encoder)["_make_iterencode"]:
        for name, make in _MAKERS.items():
            if make is not None:  # an interpreter may have no encoder in C
                setattr(json.encoder, name, _knowing_lines(make))
