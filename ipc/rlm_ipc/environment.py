"""The environment of the processes that we start: the variables named here, and no others.

A list of what looks like a secret is never complete: secrets are also called ``DATABASE_URL`` and ``MY_PASSPHRASE``.
Only the daemon keeps the environment in which it was started. It reads accounts and keys of models from it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

_PYTHON = {
    "PATH": "libraries look for shared libraries with programs when they are imported",
    "PYTHONPATH": "where packages are that are not installed",
    "LANG": "the encoding of paths and messages",
    "LC_ALL": "the same",
    "LC_CTYPE": "the same",
}
_FOLDERS = {
    "HOME": "policies name folders below it",
    "TMPDIR": "the folder of sockets, where no other is known",
    "XDG_RUNTIME_DIR": "the folder of sockets",
    "XDG_STATE_HOME": "the folder of texts and rows, which no session may read",
    "XDG_CONFIG_HOME": "the folder of the user's policies",
    "RLM_KERNEL_RUNTIME_DIR": "the folder of sockets, by our own name",
    "RLM_KERNEL_STATE_DIR": "the folder of texts and rows, by our own name",
    "RLM_KERNEL_CONFIG_DIR": "the folder of the user's policies, by our own name",
}

SUPERVISOR = {
    **_PYTHON,
    **_FOLDERS,
    "TZ": "times in its log",
    "RLM_KERNEL_MAX_SESSIONS": "how many sessions may run",
    "RLM_KERNEL_KEEP_FREE_MB": "how much memory sessions leave free",
}
"""Variables of the supervisor, each with the reason."""
ZYGOTE = {"PYTHONPATH": _PYTHON["PYTHONPATH"]}
"""Variables of the zygote. Every kernel shows them in its ``/proc/self/environ``."""
HELPER = _PYTHON
"""Variables of a helper process, which also gets ``HOME`` and ``TMPDIR`` of its own, and of a search process."""
TRUST = {"SSL_CERT_FILE": "whose certificates are believed", "SSL_CERT_DIR": "the same"}
"""Additional variables of a helper process with network access."""


def chosen(*names: Iterable[str]) -> dict[str, str]:
    """Return the variables of our own environment that are among ``names``."""
    return {name: os.environ[name] for group in names for name in group if name in os.environ}
