"""The benchmarks' runner: what it says about itself."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

RUNNER = Path(__file__).parents[2] / "bench" / "run.py"


def test_the_runner_prints_its_usage_and_runs_nothing() -> None:
    """`--help` is for people; a benchmark that it reached would take minutes."""
    done = subprocess.run([sys.executable, RUNNER, "--help"], capture_output=True, text=True, check=True, timeout=20)
    assert done.stdout.startswith("usage: python ")
    assert "[BENCHMARK ...]" in done.stdout


@pytest.mark.slow
def test_frames_keep_the_context_small_and_every_fact_in_reach(tmp_path: Path) -> None:
    """The benchmark itself says whether its promise is kept: a quarter of the flat peak, forty facts of forty."""
    picture = tmp_path / "frames.svg"
    command = [sys.executable, str(RUNNER.with_name("frames.py")), "--svg", str(picture)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("\nkept\n")
    assert "frames: 40 of 40 facts found" in done.stdout
    drawing = ET.parse(picture).getroot()
    assert len(drawing.findall("{*}polyline")) == 8
