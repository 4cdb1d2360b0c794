"""The benchmarks' runner: what it says about itself."""

import subprocess
import sys
from pathlib import Path

RUNNER = Path(__file__).parents[2] / "bench" / "run.py"


def test_the_runner_prints_its_usage_and_runs_nothing() -> None:
    """`--help` is for people; a benchmark that it reached would take minutes."""
    done = subprocess.run([sys.executable, RUNNER, "--help"], capture_output=True, text=True, check=True, timeout=20)
    assert done.stdout.startswith("usage: python ")
    assert "[BENCHMARK ...]" in done.stdout
