"""The notebooks that ship run from top to bottom on the kernel that ships."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


def _outputs(notebook: nbformat.NotebookNode) -> str:
    return "".join(
        output.get("text", "") + str(output.get("data", {}).get("text/plain", ""))
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    )


@pytest.mark.usefixtures("ended")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs_unchanged_through_the_kernelspec(path: Path, tmp_path: Path) -> None:
    """K-28: nbclient starts the kernel `rlm` by name and executes every cell."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    NotebookClient(notebook, timeout=30, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = _outputs(notebook)
    assert "ERROR" in printed
    assert "DEFERRED" in printed
    assert "it ran" not in printed


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_stored_without_outputs(path: Path) -> None:
    """Outputs are made, not kept: they would hold somebody's paths and times."""
    notebook = nbformat.read(path, as_version=4)
    assert _outputs(notebook) == ""
