"""The accounts for URLs: the file ``accounts.yaml`` in the configuration folder, which no kernel can read.

For each prefix of URLs the file names the user and the place of the secret, never the secret itself::

    "sftp://files.example.org/logs/": {user: reader, key_file: ~/.ssh/reader}
    "https://cloud.example.org/": {user: anna, password_file: ~/.keys/cloud}
    "s3://example-logs/": {user: AKIAEXAMPLE, password_env: AWS_SECRET, endpoint: "https://store.example.org"}
    "az://example-logs/": {option_files: {sas_token: ~/.keys/azure}, options: {account_name: examplestore}}

The file is read again for each URL, so that a token may be renewed.
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from pathlib import Path
from urllib.parse import quote, unquote

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rlm_contexts.errors import SourceError
from rlm_contexts.helpers.protocol import Account
from rlm_contexts.helpers.schemes import rule_of, scheme_of
from rlm_ipc.discovery import config_dir
from rlm_ipc.messages import Json
from rlm_sandbox.errors import PolicyFileError
from rlm_sandbox.policy.urls import WEB, narrowest, wrong_prefix

_LONGEST = 4 << 20
_KNOWN_HOSTS = "~/.ssh/known_hosts"
_HIDDEN = "[hidden]"
_SIGNATURE = re.compile(r"\bsig=([^&\s]+)")
"""The secret part of a shared access signature, however the rest of it is written."""
_NAME = "fix it, or name another in accounts.yaml"
_MEND = "fix that file, then load again"
_SHORTEST_SECRET = 8
"""Minimum characters of a secret that stands among other values."""
_WITH_USER = ("ftp", "sftp", "smb", "s3")


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True, defer_build=True)

    user: str | None = Field(
        None, min_length=1, description="The user who signs in; without one, the password is a token."
    )
    password_env: str | None = Field(None, description="The daemon's environment variable that holds the password.")
    password_file: str | None = Field(None, description="The file that holds the password and nothing else.")
    key_file: str | None = Field(None, description="For sftp: the private key file; a password then unlocks it.")
    known_hosts: str | None = Field(None, description="For sftp: the file with server keys, if not OpenSSH's own.")
    endpoint: str | None = Field(None, description="For a store: the URL of its server, in place of the default.")
    options: dict[str, str | int | bool] = Field({}, description="Further options for the scheme's fsspec package.")
    option_files: dict[str, str] = Field({}, description="Secret options, each read from a file.")

    @model_validator(mode="after")
    def _has_one_secret(self) -> _Entry:
        if self.password_env and self.password_file:
            raise ValueError("has two passwords; keep password_env or password_file")
        has_secret = self.password_env or self.password_file or self.key_file or self.option_files
        if not has_secret and (self.user or not (self.endpoint or self.options)):
            raise ValueError("has no secret; name one by password_env, password_file or, for sftp, key_file")
        return self


def without_secrets(text: str, account: Account) -> str:
    """Return the text without the secrets of the account, which a server may have included in its messages."""
    signatures = [found for secret in account.secrets for found in _SIGNATURE.findall(secret)]
    written = {*account.secrets, *signatures, *map(unquote, signatures)}
    if account.password:
        written.add(b64encode(f"{account.user}:{account.password}".encode()).decode())
    for secret in sorted({*written, *(quote(one, safe="") for one in written)}, key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    return text


def accounts_file() -> Path:
    """Return the path of the accounts file, which need not exist."""
    return config_dir() / "accounts.yaml"


def account_of(url: str) -> Account | None:
    """Return the account for a URL: that of the prefix with the longest path.

    Raises: SourceError when the file is malformed, or a secret is missing.
    """
    entries = _entries(accounts_file())
    prefix = narrowest(entries, url)
    if prefix is None:
        return None
    entry = entries[prefix]
    key = None if entry.key_file is None else _held(prefix, entry.key_file)
    known_hosts = entry.known_hosts or (_KNOWN_HOSTS if os.path.isfile(os.path.expanduser(_KNOWN_HOSTS)) else None)
    hosts = "" if known_hosts is None else _held(prefix, known_hosts)
    password = _password(prefix, entry)
    contents = {name: _held(prefix, file).strip() for name, file in entry.option_files.items()}
    values = {name: _value(text) for name, text in contents.items()}
    within = [text for value in values.values() if isinstance(value, dict) for text in value.values()]
    hidden = [text for text in within if isinstance(text, str) and len(text) >= _SHORTEST_SECRET]
    secrets = tuple(filter(None, (password, key, *contents.values(), *hidden)))
    options = {**entry.options, **values}
    return Account(prefix, entry.user, password, key, hosts, entry.endpoint, options, secrets)


def _entries(file: Path) -> dict[str, _Entry]:
    if not os.path.exists(file):  # nor where we may not look into the folder
        return {}
    from rlm_sandbox.policy.yaml_document import dotted, read_document  # YAML, which few daemons read

    entries: dict[str, _Entry] = {}
    try:
        for prefix, values in read_document(file).values.items():
            entries[prefix] = _Entry.model_validate(values)
            if wrong := wrong_prefix(prefix) or _unfit(prefix, entries[prefix]):
                raise SourceError(f"{file}: {prefix[:200]!r} {wrong}", _MEND)
    except PolicyFileError as problem:
        raise SourceError(str(problem), _MEND) from None
    except ValidationError as problem:
        said = [f"{dotted((prefix, *detail['loc']))}: {detail['msg']}" for detail in problem.errors(include_url=False)]
        raise SourceError(f"{file}: {'; '.join(said)}", _MEND) from None
    return entries


def _unfit(prefix: str, entry: _Entry) -> str:
    """Return why an entry does not fit its prefix; empty if it does."""
    scheme = scheme_of(prefix)
    has_password = entry.password_env is not None or entry.password_file is not None
    if scheme in _WITH_USER and entry.user is None and (has_password or entry.key_file):
        return "has no `user`; name the user who signs in"
    if not rule_of(prefix).user and entry.user is not None:
        return "has a `user`, but takes a token alone; leave it out"
    if scheme != "sftp" and (entry.key_file or entry.known_hosts):
        return "has a key_file or known_hosts, which are for sftp; name the password"
    if scheme in WEB and (entry.endpoint or entry.options or entry.option_files):
        return "has an endpoint or options, which are for other schemes; name the password"
    if entry.endpoint is not None and (wrong_prefix(f"{entry.endpoint}/") or scheme_of(entry.endpoint) not in WEB):
        return "has an endpoint that is not an http or https URL; correct it"
    return ""


def _value(held: str) -> str | dict[str, Json]:
    """Return the contents of an option's file: a JSON object, such as a service account's key, or a string."""
    try:
        parsed = json.loads(held)
    except ValueError:
        return held
    return parsed if isinstance(parsed, dict) else held


def _password(prefix: str, entry: _Entry) -> str | None:
    if entry.password_file is not None:
        return _held(prefix, entry.password_file).strip()
    if entry.password_env is None:
        return None
    if password := os.environ.get(entry.password_env):
        return password
    said = f"which the account of {prefix} needs, is not set in the daemon's environment"
    advice = "start the daemon where it is set, or name a password_file in accounts.yaml"
    raise SourceError(f"the variable {entry.password_env}, {said}", advice)


def _held(prefix: str, name: str) -> str:
    path = Path(name).expanduser()
    try:
        with path.open("rb") as file:
            held = file.read(_LONGEST).decode()
    except (OSError, UnicodeDecodeError) as problem:
        why = getattr(problem, "strerror", None) or "it is not UTF-8 text"
        raise SourceError(
            f"the file {path}, which the account of {prefix} needs, cannot be read ({why})", _NAME
        ) from None
    if held.strip():
        return held
    raise SourceError(f"the file {path}, which the account of {prefix} needs, is empty", _NAME)
