"""Runs every benchmark in this folder, or those that are named: `make bench ARGS="start round_trip"`."""

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
NOT_BENCHMARKS = {
    "apart",
    "frames_plot",
    "frames_script",
    "ratio",
    "run",
    "peer_attacks",
    "peer_mishaps",
    "peer_seats",
    "peer_worker",
}


def main() -> int:
    """Run the benchmarks one after the other; returns 1 when one of them fails."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(
            f"usage: python {sys.argv[0]} [BENCHMARK ...] [OPTION ...]\n\n{__doc__}\n\nOptions go to every benchmark."
        )
        return 0
    named = [name for name in sys.argv[1:] if not name.startswith("-")]
    options = [option for option in sys.argv[1:] if option.startswith("-")]
    found = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in NOT_BENCHMARKS)
    if unknown := set(named) - set(found):
        print(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(found)}", file=sys.stderr)
        return 2
    codes = [subprocess.call([sys.executable, FOLDER / f"{name}.py", *options]) for name in named or found]
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
