"""What reads URLs, where the name of a public host leads to a server on this machine, as an entry of a resolver would.

It verifies the certificate of that name, and it is all of what reads but its walls.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_READER = """
import json, socket, sys
from rlm_kernel.confined import fetch

known, resolve = (sys.argv[1], 443), socket.getaddrinfo

def resolved(host, port, *args, **named):
    name = host.decode() if isinstance(host, bytes) else host
    if (name, port) != known:
        raise socket.gaierror(f"{name}:{port} is not known here")
    return resolve("127.0.0.1", int(sys.argv[2]), *args, **named)

socket.getaddrinfo = resolved
fetch.run(json.load(sys.stdin), lambda said: print(json.dumps(said)))
"""


def read_as(host: str, port: int, certificate: Path, taken: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Read the URL of a request into a file; returns what is said of it."""
    with taken.open("wb") as file:
        fd = file.fileno()
        said = subprocess.run(
            [sys.executable, "-c", _READER, host, str(port)],
            input=json.dumps({"account": None, "most": 1 << 20, **request, "fd": fd}),
            env={**os.environ, "SSL_CERT_FILE": str(certificate)},
            stdout=subprocess.PIPE, pass_fds=(fd,), text=True, check=True,
        ).stdout  # fmt: skip
    answer: dict[str, Any] = json.loads(said)
    return answer
