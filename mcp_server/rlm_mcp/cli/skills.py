"""``rlm-kernel skills list|show|lint``: short instructions that an agent reads before a type of task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from rlm_client.client import call_tool
from rlm_mcp.cli.output import FAILED, Commands, JsonFlag, SessionOption, console, fail, show, table, tell
from rlm_mcp.errors import WrongUsage
from rlm_mcp.formats.skills import Skill, SkillFault, for_type, lint, load_all
from rlm_mcp.shipped import shipped

app = Commands(
    help="Show instructions for a type of task: a short core, and references to load when needed.", no_args_is_help=True
)

FolderOption = Annotated[
    Path | None,
    typer.Option(
        "--folder",
        exists=True,
        file_okay=False,
        metavar="FOLDER",
        help="Folder with your own skills; they override built-in skills of the same name.",
    ),
]
TypeOption = Annotated[str | None, typer.Option("--type", help="Only for tasks of this type, such as bug.")]


def _load(own: Path | None) -> dict[str, Skill]:
    try:
        return load_all([shipped("skills"), *([own] if own is not None else [])])
    except SkillFault as fault:
        raise WrongUsage(str(fault)) from fault


@app.command("list")
def list_(task_type: TypeOption = None, own: FolderOption = None, as_json: JsonFlag = False) -> None:
    """List the skills, with the types of tasks that they are for.

    Example: `rlm-kernel skills list`
    """
    all_skills = _load(own).values()
    skills = list(all_skills) if task_type is None else for_type(all_skills, task_type)
    rows = [(skill.name, ", ".join(skill.types), skill.description) for skill in skills]
    data = [
        {"name": one.name, "types": list(one.types), "description": one.description, "references": _names(one)}
        for one in skills
    ]
    show(data, as_json, lambda: table("", ("name", "for", "description"), rows))


@app.command("show")
def show_(
    name: Annotated[str | None, typer.Argument(help="The skill; default: those for --type.")] = None,
    task_type: TypeOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="Print the quick reference instead of the core.")] = False,
    reference: Annotated[
        str | None, typer.Option(help="Load this reference as a text of the session, and print only its name.")
    ] = None,
    own: FolderOption = None,
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Print only the core of a skill. With --reference, load a reference as a text of the session.

    Example: `rlm-kernel skills show debugging`
    """
    skills = _load(own)
    if (name is None) == (task_type is None):
        raise WrongUsage("name a skill, or pass --type")
    if name is not None and name not in skills:
        raise WrongUsage(f"there is no skill {name[:80]!r}; the skills are: {', '.join(skills)}")
    chosen = for_type(skills.values(), task_type) if task_type is not None else [skills[str(name)]]
    if reference is not None:
        if len(chosen) != 1:
            raise WrongUsage("--reference needs exactly one skill; name it")
        show(_loaded(chosen[0], reference, session), as_json)
        return
    data = [{"name": skill.name, "content": _text(skill, quick), "references": _names(skill)} for skill in chosen]
    show(data if name is None else data[0], as_json, lambda: _print(data))


@app.command("lint")
def lint_(
    place: Annotated[
        Path | None, typer.Argument(metavar="[FOLDER]", exists=True, file_okay=False, help="A folder with skills.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check the sizes, names and references of skills. Exit code 1: there is an error.

    Example: `rlm-kernel skills lint .rlm/skills`
    """
    from rlm_memory.work.items import TYPES

    where = place or shipped("skills")
    skills = [one for one in sorted(where.iterdir()) if one.is_dir()]
    mistakes = [mistake for one in skills for mistake in lint(one, TYPES)]
    if mistakes:
        fail("\n".join(mistakes), FAILED, as_json=as_json)
    show({"skills": len(skills), "wrong": []}, as_json, lambda: console.print(f"{len(skills)} skills, no errors"))


def _names(skill: Skill) -> list[str]:
    return [path.stem for path in skill.references]


def _text(skill: Skill, quick: bool) -> str:
    if not quick:
        return skill.core
    if skill.quick is None:
        raise WrongUsage(f"{skill.name} has no quick reference")
    return skill.quick.read_text("utf-8")


def _loaded(skill: Skill, reference: str, session: str | None) -> dict[str, object]:
    """Load a reference into the session, to keep it out of the caller's prompt."""
    try:
        path = skill.reference(reference)
    except SkillFault as fault:
        raise WrongUsage(str(fault)) from fault
    name = f"skill_{skill.name}_{reference}".replace("-", "_")
    answer = call_tool("load_context", {"name": name, "content": path.read_text("utf-8")}, session=session)
    return {"loaded": name, "lines": answer["line_count"], "next": f"peek({name!r}), or scan it"}


def _print(skills: Sequence[Mapping[str, object]]) -> None:
    for skill in skills:
        tell(str(skill["content"]))
