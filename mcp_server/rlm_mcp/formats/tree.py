"""A tree of goals as one file of JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Final

from rlm_ipc.messages import plain
from rlm_ipc.tree_record import TreeRecord
from rlm_ipc.version import VERSION

FORMAT: Final = "rlm-kernel tree 1"


def as_file(record: TreeRecord) -> str:
    """Return the text of the file that holds a tree."""
    about = {"format": FORMAT, "program": f"rlm-kernel {VERSION}", "exported_at": datetime.now(UTC).isoformat()}
    return json.dumps({**about, **plain(record)}, ensure_ascii=False, indent=1) + "\n"
