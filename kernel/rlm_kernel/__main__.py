"""``python -P -m rlm_kernel -f CONNECTION_FILE``: a session for launchers that know no provisioners.

The process stands for the kernel. It binds nothing itself: the supervisor serves the connection file's addresses. The
process ends with the session, and when it is killed, the session ends.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from pathlib import Path

from rlm_ipc import supervisor_protocol as protocol
from rlm_ipc.errors import SupervisorGone, UnknownKernel
from rlm_kernel.jupyter.provisioner import POLL_SECONDS, policy_for, start_kernel

WATCH_SECONDS = 10 * POLL_SECONDS


def main() -> None:
    """Start the session and stay until it ends."""
    options = argparse.ArgumentParser(prog="rlm_kernel", description="A sandboxed Jupyter kernel.")
    options.add_argument("-f", "--f", dest="connection_file", type=Path, required=True)
    options.add_argument("--policy", default=os.environ.get("RLM_KERNEL_POLICY") or "default")
    given, _ = options.parse_known_args()
    connection = json.loads(given.connection_file.read_text())
    kernel_id, client, _ = start_kernel(policy_for(given.policy, os.getcwd()), os.getcwd(), connection)
    signal.signal(signal.SIGINT, lambda *_: client.call(protocol.INTERRUPT, protocol.Interrupt(kernel_id)))
    try:
        while True:
            time.sleep(WATCH_SECONDS)
            client.call(protocol.INFO, protocol.OfKernel(kernel_id))
    except (UnknownKernel, SupervisorGone):
        return


if __name__ == "__main__":
    main()
