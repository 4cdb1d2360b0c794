"""`help(x)` in a cell: signature, documentation and members, found without running code of the session."""

import pytest

pytestmark = pytest.mark.anyio

SHAPE = """class Shape:
    'A plane figure.'
    sides = 0
    def area(self, unit: str = 'cm') -> float:
        'Return the area.'
    @property
    def name(self):
        raise RuntimeError('it ran')
"""


async def test_a_function_is_told_with_its_signature(run) -> None:
    """Its own, without a docstring; and one of a library."""
    await run("def half(number, digits: int = 2):\n    return number / 2")
    assert (await run("help(half)")).stdout == "Signature: half(number, digits: int = 2)\nType: function\n"
    said = (await run("import json\nhelp(json.dumps)")).stdout
    assert "Signature: dumps(obj, *, skipkeys=False" in said
    assert "Serialize ``obj``" in said


@pytest.mark.parametrize("asked", ["Shape", "Shape()", "'Shape'"])
async def test_a_class_and_its_objects_are_told_with_their_members(run, asked) -> None:
    """A line for each, and nothing of theirs runs."""
    said = (await run(f"{SHAPE}help({asked})")).stdout
    assert "Docstring:\nA plane figure." in said
    assert "unit: str = 'cm') -> float - Return the area.\n" in said
    assert "\n  name\n  sides\n" in said
    assert "it ran" not in said


async def test_a_class_is_named_with_what_it_derives_from(run) -> None:
    """Also one without a docstring, of which nothing else would tell which class it is; its objects name it as type."""
    await run("class Shape: pass\nclass Square(Shape, dict):\n    def area(self): pass")
    assert (await run("help(Shape)")).stdout == "Class: Shape\nType: type\n"
    assert (await run("help(Square)")).stdout.startswith("Class: Square(Shape, dict)\n")
    assert "  area(self)\n" in (await run("help('Square')")).stdout
    assert (await run("help(Shape())")).stdout == "Type: Shape\n"


async def test_a_module_is_told_with_what_the_session_sees_of_it(run) -> None:
    """Functions with their first line; no module inside, and nothing that the policy hides."""
    said = (await run("import os, math\nhelp(math)\nhelp(os)")).stdout
    assert "  sqrt(x, /) - Return the square root of x.\n" in said
    assert "\n  listdir(" in said
    assert "\n  system" not in said
    assert "\n  _" not in said


async def test_help_for_nothing_says_what_to_ask(run) -> None:
    """A text that names nothing, and no object at all."""
    assert "Nothing is known about 'pizza'" in (await run("help('pizza')")).stdout
    assert "help(x)" in (await run("help()")).stdout


async def test_hostile_objects_run_nothing(run) -> None:
    """Names, equalities and documentation that are code of the session are not asked."""
    await run(
        "ran = []\n"
        "class Meta(type):\n"
        "    __name__ = property(lambda cls: ran.append('name'))\n"
        "    def __dir__(cls): ran.append('dir'); return []\n"
        "class Odd(metaclass=Meta):\n"
        "    __doc__ = property(lambda self: ran.append('doc'))\n"
        "    def __getattr__(self, name): ran.append(name)\n"
        "    def __repr__(self): ran.append('repr')\n"
        "odd = Odd()\nran.clear()"
    )
    result = await run("help(Odd); help(odd)")
    assert result.status == "ok"
    assert "Type: " in result.stdout
    assert (await run("ran")).result == "[]"
