"""A worker that is killed at any instant: it claims, does something that can be counted, and says that it is done.

``queue_worker.py LOG``: to the file LOG it appends a line for each task that it has worked on, and one for each that it
was told is done.
"""

import os
import sys

from rlm_client.client import Client
from rlm_ipc.errors import KernelError, ToolFailed


def main(log: str) -> None:
    """Work until killed."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(*said: object) -> None:
        os.write(descriptor, (" ".join(map(str, said)) + "\n").encode())

    with Client() as client:
        while True:
            try:
                got = client.work("claim", wait=True)
                if "claimed" not in got:
                    continue
                write("worked", got["claimed"], got["fence"])
                finish(client, got["claimed"])
                write("done", got["claimed"], got["fence"])
            except ToolFailed as failed:
                if failed.answer["error"] != "lease_lost":
                    raise
                write("lost", failed.answer["frame"])
            except KernelError:  # the daemon was killed under the call: the next one starts another
                continue


def finish(client: Client, task: str) -> None:
    """Say that a task is done, again if the answer was lost: the same fence gets the same answer."""
    while True:
        try:
            client.work("done", task, {"summary": "done"})
            return
        except ToolFailed:
            raise
        except KernelError:
            continue


if __name__ == "__main__":
    main(sys.argv[1])
