"""Landlock's rules hold every right that the running kernel has, the ones that we do not know included."""

import errno
import sys

import pytest

from rlm_sandbox.os_wall import landlock

pytestmark = pytest.mark.skipif(sys.platform != "linux" or not landlock.abi_version(), reason="there is no Landlock")

RIGHTS = {
    1: (13, 0, 0),
    2: (14, 0, 0),
    3: (15, 0, 0),
    4: (15, 2, 0),
    5: (16, 2, 0),
    6: (16, 2, 2),
    9: (17, 2, 2),
    10: (17, 4, 2),
}
"""How many rights each field has since a version: files, network, scopes (the kernel's landlock.rst)."""


def test_a_ruleset_handles_every_right_of_the_running_kernel() -> None:
    """What is not handled is granted: so none is left out, whether this file has heard of it or not."""
    abi = landlock.abi_version()
    known = RIGHTS[max(version for version in RIGHTS if version <= abi)]
    masks = landlock.handled()
    counted = [mask.bit_length() for mask in (*masks, 0, 0)[:3]]
    assert all(mask == (1 << mask.bit_length()) - 1 for mask in masks)
    assert all(have >= expected for have, expected in zip(counted, known, strict=True))
    for field, mask in enumerate(masks):
        more = (*masks[:field], mask * 2 + 1, *masks[field + 1 :])
        with pytest.raises(OSError, match="Invalid argument") as refused:
            landlock._create(more)
        assert refused.value.errno == errno.EINVAL


def test_the_summary_says_what_a_version_holds_and_what_newer_ones_add() -> None:
    """`doctor` prints it: who runs an older Linux sees what a newer one would hold."""
    assert landlock.summary(4, network=False) == (
        "ABI 4: files, moves between folders, truncation, TCP; Linux 6.10 adds devices; "
        "Linux 6.12 adds signals, abstract sockets; Linux 7.1 adds sockets in folders; Linux 7.2 adds UDP"
    )
    assert landlock.summary(12, network=True) == (
        "ABI 12: files, moves between folders, truncation, devices, signals, abstract sockets, sockets in folders"
    )
