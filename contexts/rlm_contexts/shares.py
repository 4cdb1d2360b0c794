"""Which part of each text is shown when there is not enough room for all of them."""

from __future__ import annotations

from collections.abc import Iterable

from rlm_ipc.late_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShownShare:
    """A text, or a part of it.

    Attributes:
        text: what is shown.
        chars: characters of the whole.
    """

    text: str
    chars: int

    @property
    def cut(self) -> bool:
        """Whether something is missing."""
        return len(self.text) < self.chars

    def __str__(self) -> str:
        """Return the text; a cut one is followed by the length of the whole."""
        return f"{self.text}…[of {self.chars:,} characters]" if self.cut else self.text

    def shorter(self, chars: int) -> ShownShare:
        """Return the text, cut to at most that many characters."""
        return self if len(self.text) <= chars else ShownShare(self.text[: max(chars, 0)], self.chars)


def fair_share(lengths: Iterable[int], room: int) -> int:
    """Return the length to which the longer ones are cut so that all together take at most `room`.

    The shorter ones stay complete and leave what they do not need to the others. It is not below 0, and `room` itself
    when there is room for all.
    """
    rising = sorted(lengths)
    left = room
    for number, length in enumerate(rising):
        share = left // (len(rising) - number)
        if length > share:
            return max(share, 0)
        left -= length
    return room
