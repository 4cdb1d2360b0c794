"""The benchmarks' runner: what it says about itself."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from waiting import PROGRAM_SECONDS

RUNNER = Path(__file__).parents[2] / "bench" / "run.py"


def test_the_runner_prints_its_usage_and_runs_nothing() -> None:
    """`--help` is for people; a benchmark that it reached would take minutes."""
    done = subprocess.run(
        [sys.executable, RUNNER, "--help"], capture_output=True, text=True, check=True, timeout=PROGRAM_SECONDS
    )
    assert done.stdout.startswith("usage: python ")
    assert "[BENCHMARK ...]" in done.stdout


def test_the_page_of_economy_has_the_tables_that_its_script_prints() -> None:
    """Heads and names of rows: the figures differ between machines, but nobody may think that others were measured."""
    script = ast.parse(RUNNER.with_name("economy.py").read_text(encoding="utf-8"))
    heads, labels = list(_heads(script)), list(_labels(script))
    page = (RUNNER.parents[1] / "docs" / "economy.md").read_text(encoding="utf-8")
    page = page.partition("## Against the targets")[0]
    tables = re.findall(r"^(\|.*\|)\n\|-.*\n((?:\|.*\n)+)", page, re.MULTILINE)
    shown = [_cells(head) for head, _ in tables]
    named = [_cells(row)[0] for _, rows in tables for row in rows.splitlines()]
    assert [head for head in heads if not any(_fit(head, one) for one in shown)] == []
    assert [head for head in shown if not any(_fit(one, head) for one in heads)] == []
    assert [label for label in labels if not any(label.fullmatch(name) for name in named)] == []
    computed = {"flat", "compaction", "pruning", "frames", "`minimal`", "`standard`", "`full`"}
    figures = {name for name in named if name.replace(",", "").isdigit()}
    assert {n for n in named if not any(label.fullmatch(n) for label in labels)} == computed | figures


def test_the_page_of_compatibility_counts_the_cells_that_agents_wrote() -> None:
    """Each is Python by itself; the runner's own division of a file is the one that people see: `# %%`."""
    folder = RUNNER.parent / "compat" / "corpora" / "cells"
    page = (RUNNER.parents[1] / "docs" / "compatibility.md").read_text(encoding="utf-8")
    for policy, name in (("default", "agent cells"), ("data", "agent cells, data")):
        files = [path.read_text(encoding="utf-8") for path in sorted((folder / policy).glob("*.py"))]
        cells = [cell for text in files for cell in text.split("# %%\n")[1:]]
        assert all(ast.parse(cell).body for cell in cells)
        assert f"| {name} | none, they are here | `{policy}` | a session of an agent: {len(cells)} cells in " in page
        assert f" cells in {len(files)} sessions" in page


def _heads(script: ast.Module) -> Iterator[list[re.Pattern[str]]]:
    """The heads of the tables that a script prints."""
    for function in ast.walk(script):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            nodes = list(ast.walk(function))
            kept = {ast.unparse(n.targets[0]): n.value for n in nodes if isinstance(n, ast.Assign)}
            for call in nodes:
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "table":
                    head = kept.get(ast.unparse(call.args[1]), call.args[1])
                    assert isinstance(head, ast.Tuple)
                    yield [_pattern(cell) for cell in head.elts]


def _labels(script: ast.Module) -> Iterator[re.Pattern[str]]:
    """The names of the rows, where the script has them in words."""
    for node in ast.walk(script):
        if isinstance(node, ast.List):
            for row in node.elts:
                if isinstance(row, ast.Tuple) and isinstance(row.elts[0], ast.Constant | ast.JoinedStr):
                    yield _pattern(row.elts[0])
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "ASKED":
            assert isinstance(node.value, ast.Dict)
            yield from (_pattern(key) for key in node.value.keys if key is not None)


def _pattern(text: ast.expr) -> re.Pattern[str]:
    """What a text looks like when it is printed."""
    parts = text.values if isinstance(text, ast.JoinedStr) else [text]
    return re.compile("".join(re.escape(str(p.value)) if isinstance(p, ast.Constant) else ".+" for p in parts))


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


def _fit(head: list[re.Pattern[str]], cells: list[str]) -> bool:
    return len(head) == len(cells) and all(p.fullmatch(cell) for p, cell in zip(head, cells, strict=True))


@pytest.mark.slow
def test_frames_keep_the_context_small_and_every_fact_in_reach(tmp_path: Path) -> None:
    """The benchmark itself says whether its promise is kept: a quarter of the flat peak, forty facts of forty."""
    picture = tmp_path / "frames.svg"
    command = [sys.executable, str(RUNNER.with_name("frames.py")), "--svg", str(picture)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PROGRAM_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("\nkept\n")
    assert "frames: 40 of 40 facts found" in done.stdout
    drawing = ET.parse(picture).getroot()
    assert len(drawing.findall("{*}polyline")) == 8
