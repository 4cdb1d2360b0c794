"""What `remote` needs to know about a scheme besides what fsspec knows: one row for each unusual scheme."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any
from urllib.parse import urlsplit

from rlm_contexts.helpers.protocol import Account
from rlm_ipc.late_dataclasses import dataclass
from rlm_sandbox.policy.urls import PORTS

_SILENCE_SECONDS = 30
_NOT_TAKEN = "the server does not take the account of accounts.yaml"
_LARGE_BLOCKS = {"block_size": 16 << 20, "cache_type": "readahead"}


@dataclass(frozen=True, slots=True)
class Rule:
    """How URLs of one scheme are read.

    Attributes:
        hosts: what may be connected to where a URL names no host but a bucket; one that begins with a dot stands for
            all below it. Empty where the URL names the host.
        implementation: the module and class that reads it, where fsspec might choose another.
        user, password, endpoint: that class's names for them; empty where it takes none.
        anonymous: its options without a secret.
        options: its options in any case, whatever an account says.
        opening: how a file is opened.
        signs_in: whether it needs an account.
        hints: what to do about an error, by its name.
    """

    hosts: tuple[str, ...] = ()
    implementation: tuple[str, str] | None = None
    user: str = "username"
    password: str = "password"
    endpoint: str = ""
    anonymous: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    opening: Mapping[str, Any] = field(default_factory=dict)
    signs_in: bool = False
    hints: Mapping[str, str] = field(default_factory=dict)


_AZURE = Rule(
    (".blob.core.windows.net", ".dfs.core.windows.net"),
    user="account_name", password="account_key", anonymous={"anon": True},
)  # fmt: skip
_WAITS = {"connect_timeout": _SILENCE_SECONDS, "read_timeout": _SILENCE_SECONDS}
RULES = {
    "ftp": Rule(options={"timeout": _SILENCE_SECONDS}, opening=_LARGE_BLOCKS),
    "sftp": Rule(
        # fsspec's own class accepts any key that a server shows; and only the account's key and settings are used.
        implementation=("sshfs.spec", "SSHFileSystem"),
        options={
            "agent_path": None, "config": None,
            "connect_timeout": _SILENCE_SECONDS, "keepalive_interval": _SILENCE_SECONDS,
        },
        signs_in=True,
        hints={
            "HostKeyNotVerifiable": "its key is not among the known hosts: sign in there with ssh once, and compare it",
            "KeyEncryptionError": "its key cannot be decrypted: pip install bcrypt, or fix its password",
            "PermissionError": _NOT_TAKEN,
        },
    ),
    "smb": Rule(
        # Everything is encrypted, and others can still use the file meanwhile.
        options={
            "encrypt": True, "share_access": "rwd",
            "timeout": _SILENCE_SECONDS, "register_session_retries": 0,
        },
        opening={"block_size": 16 << 20},
        signs_in=True,
        hints={"LogonFailure": _NOT_TAKEN, "SMBAuthenticationError": _NOT_TAKEN},
    ),
    "s3": Rule(
        (".amazonaws.com", ".amazonaws.com.cn"),
        user="key", password="secret", endpoint="endpoint_url", anonymous={"anon": True},
        options={"config_kwargs": _WAITS}, opening=_LARGE_BLOCKS,
    ),
    "gs": Rule(
        ("storage.googleapis.com", "oauth2.googleapis.com"),
        user="", password="token", endpoint="endpoint_url", anonymous={"token": "anon"},
    ),
    "az": _AZURE,
    "abfs": _AZURE,
    "hf": Rule(
        ("huggingface.co", ".huggingface.co", ".hf.co"),
        user="", password="token", anonymous={"token": False},
    ),
}  # fmt: skip
"""The schemes that need more than fsspec's own options."""


def scheme_of(url: str) -> str:
    """Return the scheme of a valid URL."""
    return url.partition("://")[0].lower()


def rule_of(url: str) -> Rule:
    """Return how a URL is read."""
    return RULES.get(scheme_of(url), Rule())


def reach(url: str, endpoint: str | None) -> tuple[tuple[str, ...], int | None]:
    """Return the hosts that a URL may lead to, and the port; None: any.

    An `endpoint` replaces the usual hosts. Buckets may be hosts below it.
    """
    rule = rule_of(url)
    if rule.hosts and endpoint is None:
        return rule.hosts, PORTS["https"]
    parts = urlsplit(endpoint or url)
    host = (parts.hostname or "").rstrip(".")
    # FTP opens a connection to another port for each file.
    port = None if parts.scheme.lower() == "ftp" else parts.port or PORTS.get(parts.scheme.lower())
    return (host,) if endpoint is None else (host, f".{host}"), port


def options(url: str, account: Account | None) -> dict[str, Any]:
    """Return the options for the file system of a URL, with an account or without one."""
    rule = rule_of(url)
    if account is None:
        return {**rule.anonymous, **rule.options}
    named = {rule.user: account.user, rule.password: account.password, rule.endpoint: account.endpoint}
    given = {**account.options, **{name: value for name, value in named.items() if name and value is not None}}
    if scheme_of(url) == "sftp":
        key = account.key
        given |= {
            "known_hosts": account.known_hosts.encode(),
            "client_keys": [key.encode()] if key else None,
            "passphrase": given.pop("password", None) if key else None,
        }
    return {**({} if account.secrets else rule.anonymous), **given, **rule.options}
