"""A load cannot skip the decision of who may load what: the types refuse it, and one module makes what they demand."""

import ast
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from rlm_mcp.service.contexts import authority
from rlm_mcp.service.contexts.authority import Authority
from rlm_mcp.service.contexts.ingesting import Ingested, Ingestion
from rlm_mcp.service.contexts.sources import Inline, Source, Url

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


if TYPE_CHECKING:

    async def _loads_without_a_decision(ingestion: Ingestion) -> None:
        """Refused by mypy, which holds each of these comments to be unused when it is not: `make type` fails then."""
        await ingestion.ingest(Inline("x"), 1)  # type: ignore[arg-type]
        await ingestion.ingest(Url("https://example.org/"), 1)  # type: ignore[arg-type]

    async def _loads_by_the_rules(ingestion: Ingestion, rules: Authority) -> Ingested:
        """Accepted."""
        return await ingestion.ingest(await rules.permit(Inline("x")), 1)


def test_what_a_call_means_is_no_permission() -> None:
    """What a call means and what may be ingested have no type in common, or mypy would accept what it refuses here."""
    assert Ingestion.ingest.__annotations__["permitted"] == "Permitted"
    permitted = get_args(authority.Permitted)
    assert [kind for kind in get_args(Source) if issubclass(kind, permitted)] == []
