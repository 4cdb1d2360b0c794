"""What a new kernel gets when the supervisor is asked for one: its policy with real paths, and a folder of its own."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rlm_ipc import discovery
from rlm_ipc.messages import Json
from rlm_ipc.private_folders import put_file
from rlm_ipc.supervisor_protocol import Spawn, SpawnRequest
from rlm_sandbox.policy.model import Policy, resolve


def resolved(request: SpawnRequest, policy: Policy, scratch: Path, writable: frozenset[str] = frozenset()) -> Policy:
    """Return the policy of a requested kernel, with real paths."""
    workspace = Path(request.workspace) if request.workspace else None
    return resolve(policy, workspace, scratch, writable)


def spawn_call(request: SpawnRequest, policy: Policy, scratch: Path) -> Spawn:
    """Return the call that starts a kernel under the policy, which has real paths."""
    protect = (str(discovery.config_dir()),)  # policies and accounts: no session reads or writes them
    return Spawn(request, policy.to_json(), str(scratch), protect)


def write_connection(path: Path, connection: Mapping[str, Json]) -> None:
    """Write a Jupyter connection file, readable only by its owner (it holds the key)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    put_file(path, json.dumps(connection, indent=1).encode())


def new_scratch(runtime: Path, kernel_id: str) -> Path:
    """Create a session's own folder for files that its code writes."""
    folder = runtime / "scratch"
    folder.mkdir(mode=0o700, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f"{kernel_id[:12]}-", dir=folder))
