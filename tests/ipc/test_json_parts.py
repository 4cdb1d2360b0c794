"""Reading the JSON of a message's part."""

import pytest

from rlm_ipc import framing
from rlm_ipc.json_parts import json_in


@pytest.mark.parametrize("part", [b"", b"{}{}", b'{} "', b" {}", b"{", b"\xff"])
def test_a_part_holds_one_json_value_and_nothing_else(part: bytes) -> None:
    """What a hostile peer appends is not ignored."""
    assert json_in(framing.json_part({"a": ["\ud800", 1]})) == {"a": ["\ud800", 1]}
    with pytest.raises(ValueError, match=r"Expecting|follows|codec"):
        json_in(part)
