"""A load cannot skip the decision of who may load what: the types refuse it, and one module makes what they demand."""

import ast
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from rlm_mcp.service.contexts import authority
from rlm_mcp.service.contexts.ingesting import Ingestion

AUTHORITY = "mcp_server/rlm_mcp/service/contexts/authority.py"
PERMITTED = {kind.__name__ for kind in get_args(authority.Permitted)}


def _calls(path: Path) -> set[str]:
    """Names that a module calls, also as attributes of a module."""
    called = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    names = {function.id for function in called if isinstance(function, ast.Name)}
    return names | {function.attr for function in called if isinstance(function, ast.Attribute)}


def _imports(path: Path) -> list[ast.alias]:
    """The permitted sources that a module imports."""
    imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    return [one for node in imports for one in node.names if one.name in {"Permitted", *PERMITTED}]


def test_only_the_authority_constructs_what_may_be_ingested(source_files: list[Path], root: Path) -> None:
    """Each kind of permitted source is made there, and nowhere else."""
    assert len(PERMITTED) == 5
    makers = {str(path.relative_to(root)): _calls(path) & PERMITTED for path in source_files}
    assert {path: made for path, made in makers.items() if made} == {AUTHORITY: PERMITTED}
    users = [path for path in source_files if _imports(path)]
    assert users
    for path in users:
        assert not any(one.asname for one in _imports(path)), "under another name the test would not know it"
        assert not _calls(path) & {"replace", "copy", "__new__"}, "these make another one of a permitted source"


GIVEN = {"Inline('x')": False, "Url('https://example.org/')": False, "await rules.permit(Inline('x'))": True}
"""What a load could be given, and whether it may be."""
LOAD = """\
from rlm_mcp.service.contexts.authority import Authority
from rlm_mcp.service.contexts.ingesting import Ingested, Ingestion
from rlm_mcp.service.contexts.sources import Inline, Url
async def load(rules: Authority, ingestion: Ingestion) -> Ingested:
    return await ingestion.ingest({}, 1)
"""


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory, root: Path) -> str:
    """Return what mypy says of a program for each of them: at once, because it takes half a minute to begin."""
    folder = tmp_path_factory.mktemp("loads")
    programs = [folder / f"load{number}.py" for number in range(len(GIVEN))]
    for program, given in zip(programs, GIVEN, strict=True):
        program.write_text(LOAD.format(given))
    command = [sys.executable, "-m", "mypy", *map(str, programs)]
    checked = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert f"checked {len(GIVEN)} source files" in checked.stdout, checked.stdout + checked.stderr
    return checked.stdout


@pytest.mark.parametrize("given", GIVEN)
def test_a_forgotten_decision_is_a_type_error(complaints: str, given: str) -> None:
    """What a call means, and what may be ingested, have no type in common."""
    assert Ingestion.ingest.__annotations__["permitted"] == "Permitted"
    program = f"load{list(GIVEN).index(given)}.py"
    errors = [line for line in complaints.splitlines() if f"{program}:" in line and " error: " in line]
    assert (errors == []) is GIVEN[given], complaints
    assert all("[arg-type]" in error for error in errors), complaints
