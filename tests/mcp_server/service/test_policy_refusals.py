"""What is no policy file is refused at once, and told to a client without a word of it."""

import json
import os
from pathlib import Path

import pytest
from policy_calls import call, cli

pytestmark = pytest.mark.usefixtures("daemon")


@pytest.mark.parametrize("kind", ["fifo", "directory", "device", "huge", "missing"])
def test_what_is_no_policy_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    """K-28: a pipe that nobody writes holds up no daemon, and no word of a file is in a message."""
    path = tmp_path / "odd.yaml"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "huge":
        with path.open("wb") as file:
            file.truncate(1 << 40)
    assert call("status", "s", str(path))["error"] == "policy_error"
    assert call("status", "t")["policy"] == "default"


@pytest.mark.parametrize(
    "text", ["hunter2: 1\n", "extends: hunter2\n", "network: hunter2\n", "hunter2: 1\nhunter2: 1\n"]
)
def test_a_message_about_a_file_quotes_none_of_it(tmp_path: Path, text: str) -> None:
    """K-28: a client may not be allowed to read the file; its user reads more with `policy check`."""
    (tmp_path / "odd.yaml").write_text(text)
    refused = call("status", "s", str(tmp_path / "odd.yaml"))
    assert refused["error"] == "policy_error"
    assert "hunter2" not in json.dumps(refused)
    assert "policy check" in refused["message"]
    assert "hunter2" in cli("policy", "check", str(tmp_path / "odd.yaml")).stderr
