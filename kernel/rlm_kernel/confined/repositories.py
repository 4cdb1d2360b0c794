"""Where a file of a repository is asked for: at the Hugging Face Hub (`hf`), and at GitHub (`github`).

Both also lead on. What they lead to within themselves is named as such URLs are, so that the policy's prefixes and the
accounts are compared with it as with any.
"""

from __future__ import annotations

import os
import re
from urllib.parse import quote, unquote, urlsplit

from rlm_sandbox.policy_urls import PORTS
from rlm_sandbox.url_forms import Form, form_of

__all__ = ["HUB", "github_named", "github_place", "hub_named", "hub_place"]

HUB = "HF_ENDPOINT"
"""The variable of the environment that names a mirror in place of the Hub, as for Hugging Face's own programs."""
_GITHUB = "https://raw.githubusercontent.com"
_FOLDER = {"models": "", "datasets": "datasets/", "spaces": "spaces/"}
_FILE = re.compile(r"/(?:(datasets|spaces)/)?([^/]+/[^/]+)/resolve/([^/?#]+)/([^?#]+)(?:\?.*)?")
_COPY = re.compile(r"/api/resolve-cache/(models|datasets|spaces)/([^/]+/[^/]+)/([0-9a-f]{40})/([^?#]+)(?:\?.*)?")
"""Where the Hub keeps small files: by the commit that a revision is."""
_RAW = re.compile(r"/([^/]+)/([^/]+)/([^/?#]+)/([^?#]+)(?:\?.*)?")


def hub_place(url: str) -> str:
    """The documented place of a file.

    Raises: ValueError when the environment names no server.
    """
    form = _form(url)
    revision = quote(form.revision, safe="")
    return f"{_endpoint()}/{_FOLDER[form.kind]}{form.owner}/{form.name}/resolve/{revision}{quote(form.path)}"


def hub_named(asked: str, place: str) -> str:
    """What the Hub leads to within itself: a file of a repository, which may be a copy of the one that is asked for."""
    form, endpoint = _form(asked), _endpoint()
    if not place.startswith(f"{endpoint}/"):
        return place
    inside = place[len(endpoint) :]
    if (found := _COPY.fullmatch(inside)) is not None:
        kind, repository, revision, path = found.groups()
        if (kind, repository, f"/{unquote(path)}") == (form.kind, f"{form.owner}/{form.name}", form.path):
            return asked
    elif (found := _FILE.fullmatch(inside)) is not None:
        kind, repository, revision, path = found.groups()
    else:
        return place
    return f"hf://{_FOLDER[kind or 'models']}{repository}@{revision}/{unquote(path)}"


def github_place(url: str) -> str:
    """Where GitHub gives a file as it is."""
    form = _form(url)
    return f"{_GITHUB}/{form.owner}/{form.name}/{form.revision}{quote(form.path)}"


def github_named(_asked: str, place: str) -> str:
    """What it leads to within itself: a file of a repository, such as one that has another name now."""
    found = _RAW.fullmatch(place.removeprefix(_GITHUB)) if place.startswith(f"{_GITHUB}/") else None
    if found is None:
        return place
    owner, name, revision, path = found.groups()
    return f"github://{owner}:{name}@{revision}/{unquote(path)}"


def _endpoint() -> str:
    """The Hub, written as places are to which a server leads."""
    parts = urlsplit(os.environ.get(HUB) or "https://huggingface.co")
    if parts.scheme not in ("https", "http") or not parts.hostname or "@" in parts.netloc:
        raise ValueError(f"{HUB} is no http or https URL")
    port = "" if parts.port in (None, PORTS[parts.scheme]) else f":{parts.port}"
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}"


def _form(url: str) -> Form:
    form = form_of(url)
    assert form is not None  # the policy permits no other
    return form
