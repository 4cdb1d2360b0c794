"""Skills: what an agent reads before a kind of task. Short at first; references only when they are asked for.

A skill is a folder: ``SKILL.md`` (the core, with a name, a description and the types of tasks that it is for),
``quick-reference.md``, and texts in ``references/``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from rlm_ipc.late_dataclasses import dataclass

CORE_LINES = 50
QUICK_LINES = 20
REFERENCE_LINES = 400
_CORE, _QUICK, _REFERENCES = "SKILL.md", "quick-reference.md", "references"


class SkillFault(Exception):
    """A skill cannot be read; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill: its core is read, the rest is known by its files only."""

    name: str
    description: str
    types: tuple[str, ...]
    core: str
    folder: Path
    quick: Path | None
    references: tuple[Path, ...]

    def reference(self, name: str) -> Path:
        """Return the file of a reference; raises SkillFault when there is none."""
        found = next((path for path in self.references if path.stem == name), None)
        if found is None:
            known = ", ".join(path.stem for path in self.references) or "none"
            raise SkillFault(f"{self.name} has no reference {name[:80]!r}; there are: {known}")
        return found


def load(folder: Path) -> Skill:
    """Read the core of a skill; raises SkillFault."""
    import yaml  # late, because every command imports this module

    try:
        text = (folder / _CORE).read_text("utf-8")
    except (OSError, ValueError) as error:
        raise SkillFault(f"{folder / _CORE} cannot be read ({error})") from error
    head, core = _parted(text)
    try:
        header = yaml.safe_load(head)
    except yaml.YAMLError as error:
        raise SkillFault(f"{folder / _CORE}: its first lines are not YAML ({error})") from error
    if not isinstance(header, dict) or not all(isinstance(header.get(name), str) for name in ("name", "description")):
        raise SkillFault(f"{folder / _CORE} does not begin with a name and a description between lines of ---")
    types = header.get("types", [])
    if not isinstance(types, list) or not all(isinstance(one, str) for one in types):
        raise SkillFault(f"{folder / _CORE}: types is not a list of strings")
    quick = folder / _QUICK
    references = tuple(sorted((folder / _REFERENCES).glob("*.md")))
    found = quick if quick.is_file() else None
    return Skill(header["name"], header["description"], tuple(types), core, folder, found, references)


def load_all(folders: Iterable[Path]) -> dict[str, Skill]:
    """Return the skills of the folders by name; those of a later folder take the place of an earlier one's."""
    return {
        skill.name: skill
        for folder in folders
        for place in sorted(folder.iterdir())
        if (place / _CORE).is_file()
        for skill in [load(place)]
    }


def for_type(skills: Iterable[Skill], type_: str) -> list[Skill]:
    """Return the skills for tasks of a type, and no others."""
    return [skill for skill in skills if type_ in skill.types]


def lint(folder: Path, known_types: Sequence[str]) -> list[str]:
    """Return what is wrong with a skill: sizes, names, and references that nothing names or that are not there."""
    try:
        skill = load(folder)
    except SkillFault as fault:
        return [str(fault)]
    bad = []
    sizes = [(folder / _CORE, CORE_LINES), *((path, REFERENCE_LINES) for path in skill.references)]
    if skill.quick is not None:
        sizes.append((skill.quick, QUICK_LINES))
    for path, most in sizes:
        try:
            lines = len(path.read_text("utf-8").splitlines())
        except (OSError, ValueError) as error:
            bad.append(f"{path} cannot be read ({error})")
            continue
        if lines > most:
            bad.append(f"{path} has {lines} lines; {most} are the most")
    if skill.name != folder.name:
        bad.append(f"{folder / _CORE}: its name is {skill.name!r}, and its folder {folder.name!r}")
    bad += [f"{folder / _CORE}: there is no type of task {one!r}" for one in skill.types if one not in known_types]
    bad += [f"{path}: the core does not name it" for path in skill.references if f"`{path.stem}`" not in skill.core]
    return bad


def _parted(text: str) -> tuple[str, str]:
    lines = text.splitlines(keepends=True)
    if not lines or lines[0].strip() != "---":
        return "", text
    end = next((number for number, line in enumerate(lines[1:], 1) if line.strip() == "---"), len(lines))
    return "".join(lines[1:end]), "".join(lines[end + 1 :]).lstrip("\n")
