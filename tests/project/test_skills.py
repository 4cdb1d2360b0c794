"""Skills by type of task: short at first, references when they are asked for, and a linter that holds them to it."""

from pathlib import Path

import pytest
from command_line import answer, cli

from rlm_mcp.formats.skills import CORE_LINES, QUICK_LINES, SkillFault, for_type, lint, load, load_all
from rlm_memory.work.items import TYPES

HEAD = "---\nname: mine\ndescription: Use when.\ntypes: [bug]\n---\n"


@pytest.fixture
def skill(tmp_path: Path) -> Path:
    """A folder with a skill that is as it should be, and as large as it may be."""
    folder = tmp_path / "skills/mine"
    (folder / "references").mkdir(parents=True)
    core = HEAD + "See `deep`.\n" + "x\n" * (CORE_LINES - HEAD.count("\n") - 1)
    (folder / "SKILL.md").write_text(core)
    (folder / "quick-reference.md").write_text("x\n" * QUICK_LINES)
    (folder / "references/deep.md").write_text("the depths\n")
    return folder


def test_the_skills_that_come_with_us_are_as_they_should_be(root: Path) -> None:
    """E-10: cores of 50 lines, quick references of 20, and nothing that no core names."""
    places = [place for place in sorted((root / "skills").iterdir()) if place.is_dir()]
    assert [said for place in places for said in lint(place, TYPES)] == []


@pytest.mark.parametrize(
    ("type_", "names"),
    [
        ("feature", ["implementation"]),
        ("chore", ["implementation"]),
        ("api", ["api-design"]),
        ("bug", ["debugging"]),
        ("test", ["testing-strategy"]),
        ("spike", []),
    ],
)
def test_a_type_of_task_has_its_skill_and_no_other(root: Path, type_: str, names: list[str]) -> None:
    """E-10: what is loaded stays in the conversation."""
    known = load_all([root / "skills"])
    assert [one.name for one in for_type(known.values(), type_)] == names


def test_the_linter_takes_what_is_as_large_as_it_may_be(skill: Path) -> None:
    """E-10: the limits themselves are allowed."""
    assert lint(skill, TYPES) == []


BAD = {
    "a long core": ("SKILL.md", HEAD + "`deep`\n" * CORE_LINES, "lines; 50 are the most"),
    "a long quick reference": ("quick-reference.md", "x\n" * (QUICK_LINES + 1), "21 lines; 20 are the most"),
    "a long reference": ("references/deep.md", "x\n" * 401, "401 lines; 400 are the most"),
    "a reference that nothing names": ("references/other.md", "x", "the core does not name it"),
    "another name": ("SKILL.md", HEAD.replace("mine", "yours") + "`deep`", "its name is 'yours'"),
    "a type that there is not": ("SKILL.md", HEAD.replace("bug", "story") + "`deep`", "no type of task 'story'"),
    "no name": ("SKILL.md", "# Mine\n", "does not begin with a name"),
    "no YAML": ("SKILL.md", "---\n[\n---\n", "not YAML"),
    "types that are none": ("SKILL.md", HEAD.replace("[bug]", "bug"), "types is not a list"),
}


@pytest.mark.parametrize("why", BAD)
def test_the_linter_says_what_is_wrong(skill: Path, why: str) -> None:
    """E-10: one fault each, named with its file."""
    name, text, said = BAD[why]
    (skill / name).write_text(text)
    (found,) = lint(skill, TYPES)
    assert said in found
    assert Path(name).name in found


def test_a_skill_of_ones_own_takes_the_place_of_ours(skill: Path, root: Path) -> None:
    """By its name; what is no skill is left alone."""
    (skill.parent / "debugging").mkdir()
    (skill.parent / "debugging/SKILL.md").write_text(HEAD.replace("mine", "debugging") + "Ask me.\n")
    (skill.parent / "notes").mkdir()
    known = load_all([root / "skills", skill.parent])
    assert (known["debugging"].core, "mine" in known, "notes" in known) == ("Ask me.\n", True, False)
    with pytest.raises(SkillFault, match="cannot be read"):
        load(skill.parent / "notes")


def test_only_the_core_is_printed_and_a_reference_goes_into_the_session(skill: Path, daemon: Path) -> None:
    """E-10: nothing else is loaded; the reference is a context, which is read where it is needed."""
    own = ("--folder", str(skill.parent))
    shown = cli("skills", "show", "mine", *own).stdout
    assert "See `deep`." in shown
    assert "the depths" not in shown
    assert [one["name"] for one in answer("skills", "show", "--type", "bug", *own)] == ["debugging", "mine"]
    done = cli("skills", "show", "mine", "--reference", "deep", "--session", "reads", *own).stdout
    assert "loaded: skill_mine_deep" in done
    assert "the depths" not in done
    assert cli("run", "print(skill_mine_deep['content'])", "--session", "reads").stdout.strip() == "the depths"
    assert (
        "no reference 'deeper'; there are: deep"
        in cli("skills", "show", "mine", "--reference", "deeper", *own, code=2).stderr
    )
    assert "there is no skill 'none'" in cli("skills", "show", "none", code=2).stderr
    (skill / "SKILL.md").write_text("x")
    assert "does not begin with a name" in cli("skills", "lint", str(skill.parent), code=1).stderr
