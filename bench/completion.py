"""Tab and Shift-Tab in sixty situations: the kernel ``rlm`` and the ordinary Python kernel, with jedi and without it.

    python bench/completion.py [--policy data]

A row says for each kernel whether it offers everything that is wanted (yes), or what it lacks. The last lines count,
and say how long the answers took.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from jupyter_client.manager import start_new_kernel

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import tab_situations

ENGINES = {
    "rlm": ("rlm", ""),
    "python3": ("python3", ""),
    "python3 without jedi": ("python3", "%config Completer.use_jedi = False"),
}
"""The kernels, each with a cell that sets it up."""


def measured(kernel: str, first: str, folder: str) -> tuple[list[list[str]], list[float]]:
    """What a kernel lacks in each situation, and the seconds that it took."""
    manager, client = start_new_kernel(kernel_name=kernel, cwd=folder)
    lacks, seconds = [], []
    try:
        reply = client.execute_interactive(tab_situations.SETUP, timeout=120, output_hook=lambda _: None)
        if reply["content"]["status"] != "ok":
            raise SystemExit(f"{kernel}: {reply['content']['evalue']}")
        client.execute_interactive(first, timeout=120, output_hook=lambda _: None)
        for situation in tab_situations.SITUATIONS:
            begun = time.perf_counter()
            kind, code, cursor = tab_situations.request(situation)
            ask = client.inspect if kind == "inspect_request" else client.complete
            reply = ask(code, cursor, reply=True, timeout=120)
            seconds.append(time.perf_counter() - begun)
            lacks.append(tab_situations.missing(situation, reply["content"]))
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    return lacks, seconds


def main() -> None:
    """Ask both kernels, and print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--policy", default="data", help="the policy of the kernel rlm")
    os.environ["RLM_KERNEL_POLICY"] = options.parse_args().policy
    with tempfile.TemporaryDirectory() as folder:
        tab_situations.prepare(Path(folder))
        found = {name: measured(*engine, folder) for name, engine in ENGINES.items()}
    print(f"| asked | at | {' | '.join(ENGINES)} |\n|{'---|' * (len(ENGINES) + 2)}")
    for at, situation in enumerate(tab_situations.SITUATIONS):
        lacking = [", ".join(lacks[at]) for lacks, _ in found.values()]
        text = situation.text.replace("\n", " ⏎ ").replace("|", "▮")
        print(f"| {situation.asked} | `{text}` | {' | '.join(f'no: {cell}' if cell else 'yes' for cell in lacking)} |")
    for name, (lacks, seconds) in found.items():
        median, longest = 1000 * statistics.median(seconds), 1000 * max(seconds)
        print(
            f"{name}: {sum(not row for row in lacks)} of {len(lacks)}; median {median:.1f} ms, longest {longest:.0f} ms"
        )
    mine, *others = (lacks for lacks, _ in found.values())
    behind = sum(bool(row) and any(not other[at] for other in others) for at, row in enumerate(mine))
    print(f"rows in which rlm is behind: {behind}")


if __name__ == "__main__":
    main()
