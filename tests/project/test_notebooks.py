"""The notebooks that ship run from top to bottom, on the kernel that ships or as an agent's client on its sessions."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
SHOWN = {
    "1-first-session": ("Counter({'INFO': 3, 'ERROR': 2})", "ZeroDivisionError", "still here", "<table><tr><td>INFO"),
    "2-contexts": (
        "line_count=300000",
        "ctx_nb-root_log_",
        "62 errors",
        "17,512,748 characters",
        "Client('nb-child') counts 299938",
    ),
    "3-queries": ("[DEFERRED", "Query(id='q_001'", "disk: FREE SOME SPACE", "I need the configuration"),
    "4-policies": ('it ran: {"mean": 3}', "ImportRefused", "PathRefused", "'mine'", "CellRefused: 'eval'"),
    "5-forks-and-rollback": ("{'apple': 3, 'pear': 4}\n", "'quince': 9} False", "'spoiled'"),
    "6-frames": (
        "planned explain the outage",
        "{'timeout': 2, 'disk': 1}",
        "failed LookupError: no metrics for that day",
        "The database first: 2 of 3 errors.",
        "<summary>Two time-outs, one full disk.</summary>",
        "invalidated",
        "in output of a finished goal",
    ),
    "7-tables-and-plots": (
        "1       104.1  103.7",
        "'type': 'DataFrame'",
        "1, shown by wait(run='",
        "iVBORw0KGgo",
        "True\n",
    ),
}
"""What a reader has to see, by notebook: each teaches something that these outputs show."""


def _outputs(notebook: nbformat.NotebookNode) -> str:
    return "\n".join(map(_shown, (out for cell in notebook.cells if cell.cell_type == "code" for out in cell.outputs)))


def _shown(output: nbformat.NotebookNode) -> str:
    data = "\n".join(map(str, output.get("data", {}).values()))
    return output.get("text", "") + data + _COLOUR.sub("", "\n".join(output.get("traceback", ())))


_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs_and_shows_what_it_teaches(path: Path, tmp_path: Path) -> None:
    """K-28: nbclient starts the kernel by name and executes every cell; only what shall fail does."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = _outputs(notebook)
    assert [text for text in SHOWN[path.stem] if text not in printed] == []
    assert "never printed" not in printed
    failed = ["error" in [output.output_type for output in cell.get("outputs", ())] for cell in notebook.cells]
    assert failed == ["raises-exception" in cell.metadata.get("tags", ()) for cell in notebook.cells]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_stored_without_outputs(path: Path) -> None:
    """Outputs are made, not kept: they would hold somebody's paths and times."""
    notebook = nbformat.read(path, as_version=4)
    assert _outputs(notebook) == ""
    assert notebook.metadata.kernelspec.name in {"rlm", "python3"}


def test_each_notebook_is_said_what_it_shows() -> None:
    """A notebook that nobody expects anything of would be checked for running only."""
    assert [path.stem for path in NOTEBOOKS] == sorted(SHOWN)
