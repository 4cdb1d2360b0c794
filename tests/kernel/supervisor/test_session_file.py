"""What a supervisor notes of a session for the next one."""

import os
from contextlib import closing

from rlm_kernel.supervisor.kept_session import KeptState
from rlm_kernel.supervisor.session_file import STATE, SessionFile

MIB = 1 << 20


def test_what_is_noted_takes_no_more_memory_than_its_text() -> None:
    """No limit counts this memory, and a kernel chooses the text: its prompts. Escaped, each of these has 12 bytes."""
    text = "\U0001f600" * MIB + "\ud800"
    with closing(SessionFile.new()) as file:
        file.write(STATE, KeptState(untold=text))
        assert file.read(STATE, KeptState).untold == text
        assert os.fstat(file.fd).st_blocks * 512 < 5 * MIB
