"""URLs with a form of their own: a container of Azure's (`abfs`), a repository of the Hub (`hf`), one of GitHub's.

What stands in them where other URLs have a host holds `@` and `:`, which parsers take differently. So each scheme has
one strict parser: names are those that the service itself gives out, and any other text is no URL. The policy compares
what it finds, and what reads asks for just that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["FORMS", "Form", "form_of", "repository_of"]

FORMS = {
    "abfs": "abfs://CONTAINER/PATH or abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH",
    "abfss": "abfss://CONTAINER/PATH or abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH",
    "hf": "hf://datasets/OWNER/NAME/PATH or hf://OWNER/NAME@REVISION/PATH",
    "github": "github://OWNER:NAME/PATH or github://OWNER:NAME@REVISION/PATH",
}
"""The schemes, with how a URL of each is written."""
_CONTAINER = (
    r"(?P<name>\$(?:root|logs|web)|(?=[a-z0-9-]{3,63}[@/])[a-z0-9]+(?:-[a-z0-9]+)*)"
    r"(?:@(?P<owner>[a-z0-9]{3,24})\.dfs\.core\.windows\.net)?(?P<path>/.*)"
)
_HUB_NAME = r"(?=[\w.-]{1,96}[@/])\w+(?:[.-]\w+)*"
_HUB = (
    r"(?:(?P<kind>models|datasets|spaces)/)?(?!(?:models|datasets|spaces|kernels|buckets)/)"
    rf"(?P<owner>{_HUB_NAME})/(?P<name>{_HUB_NAME})"
    # A slash in a revision is written %2F, but for those that the Hub makes itself.
    r"(?:@(?P<revision>refs/(?:convert/\w+|pr/\d+)|(?!refs/)\w(?:[\w.+-]|%2[Ff]\w){0,254})(?P<path>/.*)|(?P<plain>/[^@]*))"
)
_GITHUB = (
    r"(?P<owner>[A-Za-z0-9][A-Za-z0-9_-]{0,38}):(?P<name>(?!\.{1,2}[@/])[\w.-]{1,100})"
    r"(?:@(?P<revision>\w[\w.+-]{0,254})?)?(?P<path>/.*)"
)
_PARSERS = {
    scheme: re.compile(pattern, re.ASCII)
    for scheme, pattern in (("abfs", _CONTAINER), ("abfss", _CONTAINER), ("hf", _HUB), ("github", _GITHUB))
}
_DEFAULT = {"hf": "main", "github": "HEAD"}
"""The revision of a repository that is meant where none is named."""


@dataclass(frozen=True, slots=True)
class Form:
    """What a URL names.

    Attributes:
        scheme: how it is read.
        kind: of the Hub: models, datasets or spaces.
        owner: whose it is: of a container the storage account, if the URL names one.
        name: the container, or the repository.
        revision: of a repository: what is meant where none is named, too.
        path: what follows, as it is written; it begins with a slash.
    """

    scheme: str
    kind: str
    owner: str
    name: str
    revision: str
    path: str

    @property
    def place(self) -> tuple[str, ...]:
        """All but the path: what two URLs have in common that are compared by their paths."""
        return self.scheme, self.kind, self.owner, self.name, self.revision


def form_of(url: str) -> Form | None:
    """What a URL with a form of its own names; None for any other, and for one that is not as it must be."""
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower()
    if scheme not in FORMS or (found := _PARSERS[scheme].fullmatch(rest)) is None:
        return None
    parts = found.groupdict()
    revision = (parts.get("revision") or _DEFAULT.get(scheme, "")).replace("%2F", "/").replace("%2f", "/")
    if ".." in revision:
        return None
    kind = (parts.get("kind") or "models") if scheme == "hf" else ""
    path = parts["path"] if parts["path"] is not None else parts["plain"]
    return Form(scheme, kind, parts["owner"] or "", parts["name"], revision, path)


def repository_of(url: str) -> str:
    """The narrowest prefix that a policy or an account can name for all of what such a URL lies in; else nothing."""
    form = form_of(url)
    return "" if form is None else url[: len(url) - len(form.path)] + "/"
