"""The process that holds a lease of the loop: it runs commands one after the other, as ordered by its input.

A line of input is an order: ``{"argv": […], "cwd": …, "log": …}``. A line of output is the exit status of that command,
which is also written to the file ``LOG.status``, for a loop that takes over. At the end of its input the process
ends, after the running command. A command never outlives it, because without a lease it must not write.

It is run by its path and uses only the standard library, because it starts once for every task.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
from types import FrameType

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def main() -> None:
    """Run the commands that the input orders."""
    libc = ctypes.CDLL(None)
    running: list[subprocess.Popen[bytes]] = []

    def end(_number: int, _frame: FrameType | None) -> None:
        for command in running:
            end_group(command)
        os._exit(1)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the loop, which then ends this process
    for line in sys.stdin:
        order = json.loads(line)
        with open(order["log"], "ab") as log:
            try:
                command = subprocess.Popen(  # some agents believe PWD more than the system
                    order["argv"], cwd=order["cwd"], env={**os.environ, "PWD": order["cwd"]},
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                    preexec_fn=lambda: libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL),  # noqa: PLW1509 (no threads here)
                )  # fmt: skip
            except OSError as error:
                what = f"in {order['cwd']}" if error.filename == order["cwd"] else order["argv"][0]
                log.write(f"cannot run {what}: {error.strerror}\n".encode())
                status = 127
            else:
                running[:] = [command]
                status = command.wait()
                running.clear()
                end_group(command)
        beside = f"{order['log']}.status.new"
        with open(beside, "w", encoding="ascii") as file:
            file.write(str(status))
        os.replace(beside, f"{order['log']}.status")
        try:
            print(status, flush=True)
        except BrokenPipeError:
            os._exit(0)


def end_group(command: subprocess.Popen[bytes]) -> None:
    """End the process group of a command: the command, or processes that it left running."""
    try:
        os.killpg(command.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


if __name__ == "__main__":
    main()
