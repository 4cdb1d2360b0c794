"""What a URL may lead to, and what the package that reads it is told: by the table, and by an account."""

from dataclasses import replace
from typing import Any

import pytest

from rlm_contexts.helpers.protocol import Account
from rlm_contexts.helpers.schemes import RULES, options, reach

ENDPOINT = "https://store.example:9000"


@pytest.mark.parametrize(
    ("url", "endpoint", "hosts", "port"),
    [
        ("ftp://Files.example./log", None, ("files.example",), None),
        ("SFTP://files.example/log", None, ("files.example",), 22),
        ("sftp://files.example:2222/log", None, ("files.example",), 2222),
        ("smb://files.example/logs/log", None, ("files.example",), 445),
        ("shop://files.example:8080/log", None, ("files.example",), 8080),
        ("shop://bucket/log", None, ("bucket",), None),
        ("shop://bucket/log", ENDPOINT, ("store.example", ".store.example"), 9000),
        ("s3://bucket/log", ENDPOINT, ("store.example", ".store.example"), 9000),
        ("s3://bucket/log", "http://store.example", ("store.example", ".store.example"), 80),
        ("s3://bucket/log", None, (".amazonaws.com", ".amazonaws.com.cn"), 443),
        ("s3://evil.example/log", None, (".amazonaws.com", ".amazonaws.com.cn"), 443),
    ],
)
def test_a_url_leads_to_its_own_host_or_to_those_of_its_store(
    url: str, endpoint: str | None, hosts: tuple[str, ...], port: int | None
) -> None:
    """Of a store never to what the URL names, which is a bucket; an endpoint takes the place of the usual hosts."""
    assert reach(url, endpoint) == (hosts, port)


def account(**given: Any) -> Account:
    """An account as the process that reads is given it."""
    return replace(Account("", None, None, None, "", None, {}, ()), **given)


def test_no_account_loosens_what_the_table_says() -> None:
    """Neither that all is encrypted nor that a server's key is compared."""
    loose = {"encrypt": False, "known_hosts": None, "agent_path": "/run/agent", "anon": False}
    signs_in = account(user="anna", password="pw", known_hosts="a key", options=loose, secrets=("pw",))
    assert options("smb://files.example/logs/log", signs_in)["encrypt"] is True
    told = options("sftp://files.example/log", signs_in)
    assert (told["known_hosts"], told["agent_path"], told["client_keys"]) == (b"a key", None, None)


def test_a_secret_has_the_name_that_the_package_gives_it() -> None:
    """Without one the package is told to be nobody, so that it looks for keys in no place of its own."""
    told = options("s3://logs/x", account(user="id", password="pw", endpoint=ENDPOINT, secrets=("pw",)))
    assert (told["key"], told["secret"], told["endpoint_url"], "anon" in told) == ("id", "pw", ENDPOINT, False)
    key = account(user="anna", password="pw", key="a key", secrets=("pw", "a key"))
    told = options("sftp://files.example/log", key)
    assert (told["username"], told["client_keys"], told["passphrase"], "password" in told) == (
        "anna",
        [b"a key"],
        "pw",
        False,
    )
    for scheme in ("s3", "gs", "az", "abfs", "hf"):
        anonymous = RULES[scheme].anonymous
        assert anonymous.items() <= options(f"{scheme}://logs/x", None).items()
        assert anonymous.items() <= options(f"{scheme}://logs/x", account(endpoint=ENDPOINT)).items()
