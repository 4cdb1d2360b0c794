"""The text of cells as pages show it."""

import pytest

from rlm_ipc.displays import with_traceback

TOLD = ("Traceback (most recent call last):", "  Cell 2, line 1", "    d['k']", "\x1b[1;31mKeyError\x1b[0m: 'k'")
SEEN = "Traceback (most recent call last):\n  Cell 2, line 1\n    d['k']\nKeyError: 'k'"


@pytest.mark.parametrize(
    ("output", "traceback", "shown"),
    [
        ("KeyError: 'k'", TOLD, SEEN),
        ("printed\nKeyError: 'k'\nKeyError: 'k'", TOLD, f"printed\nKeyError: 'k'\n{SEEN}"),
        ("1\nValueError: a\nb", (*TOLD[:3], "json.ValueError: a", "b"), f"1\n{SEEN[:-13]}json.ValueError: a\nb"),
        ("printed\nKeyError: 'k'", (), "printed\nKeyError: 'k'"),
        ("cut off here", TOLD, "cut off here"),
        ("", TOLD, ""),
    ],
    ids=["an error alone", "the same text printed", "several lines", "no traceback", "an output that was cut", "none"],
)  # fmt: skip
def test_a_traceback_takes_the_place_of_the_error_that_ends_an_output(
    output: str, traceback: tuple[str, ...], shown: str
) -> None:
    """What was printed before stays; colours of a front end do not come along."""
    assert with_traceback(output, traceback) == shown
