"""``rlm-kernel skills list|show|lint``: what an agent reads before a kind of task, short at first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

import rlm_mcp
from rlm_client.client import call_tool
from rlm_mcp.cli.output import FAILED, Commands, JsonFlag, SessionOption, console, fail, show, table, tell
from rlm_mcp.errors import WrongUsage
from rlm_mcp.formats.skills import Skill, SkillFault, for_type, lint, load_all

app = Commands(
    help="Read what helps with a kind of task: the core first, references when needed.", no_args_is_help=True
)

_PACKAGE = Path(rlm_mcp.__file__).parent

FolderOption = Annotated[
    Path | None,
    typer.Option("--folder", exists=True, file_okay=False, help="A folder with skills of yours; their names win."),
]
TypeOption = Annotated[str | None, typer.Option("--type", help="Only for tasks of this type, such as bug.")]


def folder() -> Path:
    """Where our skills are: beside the package where that is installed, else in the checkout."""
    installed = _PACKAGE / "skills"
    return installed if installed.is_dir() else _PACKAGE.parents[1] / "skills"


def _known(own: Path | None) -> dict[str, Skill]:
    try:
        return load_all([folder(), *([own] if own is not None else [])])
    except SkillFault as fault:
        raise WrongUsage(str(fault)) from fault


@app.command("list")
def list_(task_type: TypeOption = None, own: FolderOption = None, as_json: JsonFlag = False) -> None:
    """List the skills, with the types of tasks that they are for."""
    known = _known(own)
    found = list(known.values()) if task_type is None else for_type(known.values(), task_type)
    rows = [(skill.name, ", ".join(skill.types), skill.description) for skill in found]
    said = [
        {"name": one.name, "types": list(one.types), "description": one.description, "references": _names(one)}
        for one in found
    ]
    show(said, as_json, lambda: table("", ("name", "for", "what it is"), rows))


@app.command("show")
def show_(
    name: Annotated[str | None, typer.Argument(help="The skill; default: those for --type.")] = None,
    task_type: TypeOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="The quick reference instead of the core.")] = False,
    reference: Annotated[
        str | None, typer.Option(help="Load this reference as a text of the session, and print its name only.")
    ] = None,
    own: FolderOption = None,
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the core of a skill, and nothing else of it; a reference becomes a text of the session."""
    known = _known(own)
    if (name is None) == (task_type is None):
        raise WrongUsage("name a skill, or pass --type")
    if name is not None and name not in known:
        raise WrongUsage(f"there is no skill {name[:80]!r}; there are: {', '.join(known)}")
    found = for_type(known.values(), task_type) if task_type is not None else [known[str(name)]]
    if reference is not None:
        if len(found) != 1:
            raise WrongUsage("--reference needs one skill: name it")
        show(_loaded(found[0], reference, session), as_json)
        return
    said = [{"name": skill.name, "content": _text(skill, quick), "references": _names(skill)} for skill in found]
    show(said if name is None else said[0], as_json, lambda: _print(said))


@app.command("lint")
def lint_(
    place: Annotated[
        Path | None, typer.Argument(metavar="[FOLDER]", exists=True, file_okay=False, help="A folder with skills.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check sizes, names and references of skills; ends with 1 if something is wrong."""
    from rlm_memory.work.items import TYPES

    where = place or folder()
    skills = [one for one in sorted(where.iterdir()) if one.is_dir()]
    bad = [said for one in skills for said in lint(one, TYPES)]
    if bad:
        fail("\n".join(bad), FAILED, as_json=as_json)
    show({"skills": len(skills), "wrong": []}, as_json, lambda: console.print(f"{len(skills)} skills, nothing wrong"))


def _names(skill: Skill) -> list[str]:
    return [path.stem for path in skill.references]


def _text(skill: Skill, quick: bool) -> str:
    if not quick:
        return skill.core
    if skill.quick is None:
        raise WrongUsage(f"{skill.name} has no quick reference")
    return skill.quick.read_text("utf-8")


def _loaded(skill: Skill, reference: str, session: str | None) -> dict[str, object]:
    """Load a reference; its text goes into the session, not into the caller's prompt."""
    try:
        path = skill.reference(reference)
    except SkillFault as fault:
        raise WrongUsage(str(fault)) from fault
    name = f"skill_{skill.name}_{reference}".replace("-", "_")
    answer = call_tool("load_context", {"name": name, "content": path.read_text("utf-8")}, session=session)
    return {"loaded": name, "lines": answer["line_count"], "next": f"peek({name!r}), or scan it"}


def _print(found: Sequence[Mapping[str, object]]) -> None:
    for skill in found:
        tell(str(skill["content"]))
