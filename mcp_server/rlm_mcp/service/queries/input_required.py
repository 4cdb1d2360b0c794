"""Ends a call that cannot continue before its client has answered something."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp_types import InputRequiredResult


class InputRequired(Exception):
    """The call cannot continue before the client has answered; ``result`` is sent to it."""

    def __init__(self, result: InputRequiredResult) -> None:
        super().__init__("the client is asked for input")
        self.result = result
