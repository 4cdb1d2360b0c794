"""Where what reads a URL may be led to: addresses are judged as they are connected to."""

import socket
import subprocess
import sys

import pytest

from rlm_contexts.helpers.egress_filter import kind_of

BEHIND_THE_FILTER = """
import socket, sys
from rlm_contexts.helpers.egress_filter import AddressFilter

address_filter = AddressFilter()
if sys.argv[2:]:
    socket.create_connection((sys.argv[2], int(sys.argv[1]))).close()
address_filter.hold()
for host in ("127.0.0.1", "localhost", "::1", "::ffff:127.0.0.1", "10.0.0.1", "169.254.169.254"):
    try:
        socket.create_connection((host, int(sys.argv[1])), timeout=5).close()
        print("connected")
    except PermissionError:
        print("refused")
"""


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize(("came_from", "near"), [([], "refused"), (["127.0.0.1"], "connected")])
def test_who_came_from_a_public_address_is_led_to_none_of_this_machine(came_from: list[str], near: str) -> None:
    """By no name and in no spelling; from an address of this machine others of it may follow, and no more."""
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        command = [sys.executable, "-c", BEHIND_THE_FILTER, str(listener.getsockname()[1]), *came_from]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert said == [near] * 4 + ["refused"] * 2


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("140.82.112.3", "public"), ("2606:50c0:8000::153", "public"), ("64:ff9b::8c52:7003", "public"),
        ("127.8.0.1", "loopback"), ("::1", "loopback"), ("::ffff:127.0.0.1", "loopback"),
        ("64:ff9b::7f00:1", "loopback"), ("2002:7f00:1::", "loopback"),
        ("169.254.169.254", "link-local"), ("fe80::1%lo", "link-local"), ("::ffff:169.254.169.254", "link-local"),
        ("10.1.2.3", "private"), ("192.168.0.1", "private"), ("100.64.0.1", "private"), ("fd00::1", "private"),
        ("fec0::1", "private"),
        ("0.0.0.0", "other"), ("::", "other"), ("224.0.0.1", "other"), ("240.0.0.1", "other"), ("ff02::1", "other"),
        ("localhost", "other"), ("/run/socket", "other"),
    ],
)  # fmt: skip
def test_what_an_address_is_in_does_not_depend_on_its_spelling(address: str, kind: str) -> None:
    """An address of IPv4 within one of IPv6 is what it is by itself."""
    assert kind_of(address) == kind
