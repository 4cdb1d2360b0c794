"""How an object of Azure Blob Storage is asked for by http, and what an account of it signs."""

from __future__ import annotations

import hmac
import os
from base64 import b64decode, b64encode
from collections.abc import Mapping
from email.utils import formatdate
from typing import Any
from urllib.parse import quote, urlsplit

from rlm_sandbox.url_forms import form_of

__all__ = ["HEADERS", "MARKS_FOLDER", "NAMES", "needed", "place", "sign"]

_NAME, _ENDPOINT = "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ENDPOINT"
NAMES = (_NAME, _ENDPOINT)
"""The variables of the environment that say whose containers are meant, of which one is enough."""
_CLOUD = ".blob.core.windows.net"
_VERSION = "2021-08-06"
HEADERS = {"x-ms-version": _VERSION}
MARKS_FOLDER = ("x-ms-meta-hdi_isfolder", "true")
_OTHER_SIGNED_HEADERS = 11
"""Of those that a signature is made of, all that a plain request has not, from Content-Encoding to Range."""


def needed(url: str) -> tuple[str, ...]:
    """The variables of which one must be there: none for a URL that names its storage account."""
    form = form_of(url)
    return () if form is not None and form.owner else NAMES


def place(url: str) -> str:
    """Where an object is: at the storage account that the URL names, or else below the endpoint of the environment.

    Raises: ValueError when an `abfss` URL would be asked for without TLS.
    """
    form = form_of(url)
    container, _, key = url.partition("://")[2].partition("/")
    if form is not None and form.owner:
        return f"https://{form.owner}{_CLOUD}/{form.name}/{quote(key)}"
    endpoint = os.environ.get(_ENDPOINT) or f"https://{os.environ.get(_NAME, '')}{_CLOUD}"
    if form is not None and form.scheme == "abfss" and not endpoint.lower().startswith("https://"):
        raise ValueError(f"abfss is read over TLS only, and {_ENDPOINT} is no https URL")
    return f"{endpoint.rstrip('/')}/{container}/{quote(key)}"


def sign(account: Mapping[str, Any], asked: str) -> tuple[str, dict[str, str]]:
    """A place and headers with an account: the user is the storage account, whose key the password is.

    Without a user the password is a shared access signature, which goes into the place, or else a token.
    """
    user, password = account["user"], account["password"]
    if user is not None:
        return asked, _signed_with_key(user, password, asked)
    if "sig=" in password:
        return f"{asked}?{password.rpartition('?')[2]}", {}
    if password.count(".") != 2:
        raise ValueError("the password of its account is no token and no shared access signature; a key has a `user`")
    return asked, {"Authorization": f"Bearer {password}"}


def _signed_with_key(user: str, password: str, asked: str) -> dict[str, str]:
    try:
        key = b64decode(password, validate=True)
    except ValueError:
        raise ValueError("the password of its account is no key of a storage account") from None
    own = {"x-ms-date": formatdate(usegmt=True), **HEADERS}
    lines = ["GET", *[""] * _OTHER_SIGNED_HEADERS, *(f"{name}:{value}" for name, value in own.items())]
    text = "\n".join([*lines, f"/{user}{urlsplit(asked).path}"])
    signature = b64encode(hmac.digest(key, text.encode(), "sha256")).decode()
    return {"x-ms-date": own["x-ms-date"], "Authorization": f"SharedKey {user}:{signature}"}
