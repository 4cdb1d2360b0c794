"""Of a field that holds several things each is compared by itself: the one that is looser is found and named."""

from itertools import combinations
from typing import Any, get_args

import pytest

from rlm_sandbox.policy import Policy, checked, loosened
from rlm_sandbox.policy.compare import admits, is_stricter_or_equal
from rlm_sandbox.policy.layer_names import WALL_NAMES
from rlm_sandbox.policy.model import LlmMode

CHOICES = {
    "language.wall": ("restricted", "off"),
    "attachments.mode": ("none", "watch", "execute"),
    "attachments.interrupt": ("own", "any"),
    "attachments.restart": ("attach", "fresh"),
    "checkpoint": ("off", "lazy", "strict"),
}
"""The values of each field that chooses one, the strictest first."""


def policy(**fields: Any) -> Policy:
    """The closed policy but for fields: `llm__modes` is `llm.modes`."""
    values: dict[str, Any] = {}
    for name, value in fields.items():
        section, _, field = name.rpartition("__")
        (values.setdefault(section, {}) if section else values)[field] = value
    return checked(values)


def said(inner: Policy, outer: Policy) -> dict[str, str]:
    """What is looser; that the short question is answered alike."""
    found = loosened(inner, outer)
    assert is_stricter_or_equal(inner, outer) is (not found)
    return found


@pytest.mark.parametrize("wall", WALL_NAMES)
def test_each_wall_that_is_no_longer_required_is_named(wall: str) -> None:
    """K-28: a fork may drop none of the walls of its parent, and may require more."""
    every = policy(walls__require=WALL_NAMES)
    rest = policy(walls__require=tuple(name for name in WALL_NAMES if name != wall))
    assert said(rest, every) == {"walls.require": f"does not require {wall}"}
    assert said(every, rest) == {}


@pytest.mark.parametrize("mode", get_args(LlmMode))
def test_each_mode_that_a_call_may_choose_is_compared(mode: str) -> None:
    """K-28: by `modes` alone a call of a fork gets a provider as well as by `mode`."""
    others = tuple(name for name in get_args(LlmMode) if name != mode)
    without = policy(llm__mode=others[0], llm__modes=others)
    assert said(policy(llm__mode=others[0], llm__modes=(mode,)), without) == {
        "llm.modes": f"{mode}, where the other does not have it"
    }
    assert said(policy(llm__mode=mode, llm__modes=()), without) == {
        "llm.mode": f"{mode}, where the other does not have it"
    }
    # One that the other may choose, by whichever of the two fields, is not looser.
    assert said(policy(llm__mode=mode, llm__modes=()), policy(llm__mode=others[0], llm__modes=(mode,))) == {}
    assert said(policy(llm__mode=mode, llm__modes=(mode,)), policy(llm__mode=mode, llm__modes=())) == {}


@pytest.mark.parametrize(
    ("known", "module", "admitted"),
    [
        ("json", "json", True),
        ("json", "json.decoder", True),
        ("json", "jsonpickle", False),
        ("json", "json_tools.decoder", False),
        ("os.path", "os", False),
        ("os.path", "os.path", True),
        ("*", "anything.at.all", True),
    ],
)
def test_a_module_is_admitted_by_itself_its_package_or_everything(known: str, module: str, admitted: bool) -> None:
    """K-28: the beginning of a name is no package."""
    assert admits(("math", known), module) is admitted
    more = {} if admitted else {"language.imports": f"admits {module}"}
    assert said(policy(language__imports=("math", module)), policy(language__imports=("math", known))) == more


def test_everything_is_more_than_any_modules() -> None:
    """K-28: `*` is admitted by `*` alone."""
    assert said(policy(language__imports=("*",)), policy(language__imports=("json",))) == {
        "language.imports": "admits *"
    }
    assert said(policy(language__imports=("*",)), policy(language__imports=("*",))) == {}


@pytest.mark.parametrize("path", ["/etc", "/etc/passwd", "/data2", "/dat", "/", "/data", "~/data"])
@pytest.mark.parametrize("field", ["read", "write"])
def test_each_path_outside_of_the_others_is_named(field: str, path: str) -> None:
    """K-28: no folder is free, and the beginning of a name is no folder."""
    outer = policy(files__read=("/data",), files__write=("/data",))
    inner = policy(**{f"files__{field}": ("/data/a", path)})
    assert said(inner, outer) == ({} if path == "/data" else {f"files.{field}": f"{field}s {path}"})


def test_what_may_be_written_may_be_read_and_not_the_other_way_round() -> None:
    """K-28: as the schema says of `files.read`."""
    writes, reads = policy(files__write=("/data",)), policy(files__read=("/data",))
    assert said(policy(files__read=("/data/a", "/data")), writes) == {}
    assert said(policy(files__write=("/data/a",)), reads) == {"files.write": "writes /data/a"}


def test_each_name_that_is_no_longer_blocked_is_named() -> None:
    """K-28: blocking others in its place does not make up for it."""
    outer = policy(language__blocked_names=("eval", "exec", "open"))
    inner = policy(language__blocked_names=("eval", "open", "print"))
    assert said(inner, outer) == {"language.blocked_names": "does not block exec"}


def test_without_the_language_wall_its_fields_confine_nothing() -> None:
    """K-28: a fork behind the wall is stricter than a parent without it, whatever it admits."""
    outer = policy(language__wall="off")
    assert said(policy(language__imports=("*",), language__blocked_names=()), outer) == {}
    within = policy(language__wall="restricted")
    assert set(said(policy(language__wall="off", language__imports=("*",)), within)) == {
        "language.wall",
        "language.imports",
    }


@pytest.mark.parametrize("field", CHOICES)
def test_every_choice_is_looser_than_those_before_it(field: str) -> None:
    """K-28: not the last alone, and each as loose as itself."""
    name = field.replace(".", "__")
    for strict, loose in combinations(CHOICES[field], 2):
        assert said(policy(**{name: loose}), policy(**{name: strict})) == {
            field: f"{loose}, where the other has {strict}"
        }
        assert said(policy(**{name: strict}), policy(**{name: loose})) == {}
    for value in CHOICES[field]:
        assert said(policy(**{name: value}), policy(**{name: value})) == {}


@pytest.mark.parametrize(
    ("inner", "outer", "looser"),
    [(0, 1, True), (1, 0, False), (2, 1, True), (1, 2, False), (0, 0, False), (1, 1, False)],
)
def test_no_limit_of_refused_attempts_is_the_loosest(inner: int, outer: int, looser: bool) -> None:
    """K-28: 0 ends no session; every other limit is the tighter the lower it is."""
    name = "limits__refused_attempts"
    assert bool(said(policy(**{name: inner}), policy(**{name: outer}))) is looser
    allowed = said(policy(limits__queries=inner), policy(limits__queries=outer))
    assert allowed == ({"limits.queries": f"{inner}, where the other has {outer}"} if inner > outer else {})


def test_a_permission_is_named_only_where_the_other_has_it_not() -> None:
    """K-28: true, where the other has false."""
    for name in ("network", "reopen", "llm__sampling", "llm__cache", "attachments__trusted", "files__metadata"):
        yes, no = policy(**{name: True}), policy(**{name: False})
        assert said(yes, no) == {name.replace("__", "."): "true, where the other has false"}
        assert said(no, yes) == said(yes, yes) == said(no, no) == {}
    tight, loose = policy(walls__private=True), policy(walls__private=False)
    assert said(loose, tight) == {"walls.private": "false, where the other has true"}
    assert said(tight, loose) == said(loose, loose) == said(tight, tight) == {}


def test_a_long_list_is_named_by_its_first_three() -> None:
    """The refusal of a fork is one line."""
    four = policy(language__imports=("ast", "bisect", "cmath", "dis"))
    assert said(four, policy()) == {"language.imports": "admits ast, bisect, cmath and 1 more"}
    three = policy(urls=("https://a.org/", "https://b.org/", "https://c.org/"))
    assert said(three, policy()) == {"urls": "loads https://a.org/, https://b.org/, https://c.org/"}
    assert said(three, policy(urls=("https://c.org/", "https://a.org/"))) == {"urls": "loads https://b.org/"}
