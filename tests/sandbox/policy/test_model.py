"""The policy as a value: immutable, comparable, resolvable, safe to send."""

import itertools
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest

from rlm_sandbox.errors import PolicyLinkError
from rlm_sandbox.policy import (
    MIB,
    FilePolicy,
    LanguagePolicy,
    Limits,
    Policy,
    WallPolicy,
    checked_json,
    is_stricter_or_equal,
    load_policy,
    loosened,
    policy_names,
    resolve,
)

SHIPPED = ("data", "default", "strict", "trusted")


def test_the_four_policies_ship() -> None:
    """K-28: default, strict, data and trusted are there for everyone, each with a description."""
    assert set(SHIPPED) <= set(policy_names())
    assert all(load_policy(name).description for name in SHIPPED)


def test_the_default_policy_has_the_seeds_rules() -> None:
    """K-21: the six names are blocked, ordinary modules can be imported, open() is limited to two folders."""
    policy = load_policy("default")
    assert set(policy.language.blocked_names) == {"eval", "exec", "compile", "input", "globals", "locals"}
    assert {"re", "json", "collections", "math"} <= set(policy.language.imports)
    assert not {"subprocess", "socket", "ctypes", "pickle"} & set(policy.language.imports)
    assert policy.files.read == ("${workspace}", "${scratch}")
    assert policy.files.write == ("${scratch}",)
    assert not policy.network


def test_the_defaults_are_the_seeds_limits() -> None:
    """K-13, K-18, K-19, K-20: seconds a cell, bytes of output, content and memory; the idle time is that of hours."""
    limits = Limits()
    assert limits.cell_seconds == 60
    assert limits.output_bytes == MIB
    assert limits.content_bytes == 100 * MIB
    assert limits.memory_bytes == 512 * MIB
    assert limits.idle_seconds == 7200


def test_strict_allows_least_and_trusted_most() -> None:
    """The shipped policies are ordered: strict, default, data, trusted."""
    strict, default, data, trusted = (load_policy(name) for name in ("strict", "default", "data", "trusted"))
    assert is_stricter_or_equal(strict, default)
    assert is_stricter_or_equal(default, data)
    assert is_stricter_or_equal(data, trusted)
    assert not is_stricter_or_equal(default, strict)
    assert not is_stricter_or_equal(data, default)
    assert not is_stricter_or_equal(trusted, data)
    assert strict.files.read == strict.files.write == ()


@pytest.mark.parametrize("name", SHIPPED)
def test_a_policy_survives_json(name: str) -> None:
    """A policy travels to the supervisor as JSON and arrives unchanged."""
    policy = load_policy(name)
    assert checked_json(policy.to_json()) == policy


def test_a_policy_cannot_be_changed() -> None:
    """What was checked is what is enforced."""
    with pytest.raises(FrozenInstanceError):
        Policy().network = True  # type: ignore[misc]


LOOSER = {
    "the language wall is off": Policy(language=LanguagePolicy(wall="off")),
    "a name is not blocked": Policy(language=LanguagePolicy(blocked_names=("eval",))),
    "a module more": Policy(language=LanguagePolicy(imports=("os",))),
    "a path to read": Policy(files=FilePolicy(read=("/usr",))),
    "a path to write": Policy(files=FilePolicy(write=("${scratch}",))),
    "metadata": Policy(files=FilePolicy(metadata=True)),
    "the network": Policy(network=True),
    "processes": Policy(limits=Limits(processes=1)),
    "time": Policy(limits=Limits(cell_seconds=61)),
    "memory": Policy(limits=Limits(memory_bytes=513 * MIB)),
}


@pytest.mark.parametrize("looser", LOOSER.values(), ids=list(LOOSER))
def test_a_policy_with_more_is_not_stricter(looser: Policy) -> None:
    """One thing more is enough, and the comparison holds the other way round."""
    assert not is_stricter_or_equal(looser, Policy())
    assert is_stricter_or_equal(Policy(), looser)


def test_a_policy_that_does_without_a_view_of_its_own_is_looser() -> None:
    """A private session has no forks that see more than it does."""
    private = Policy(walls=WallPolicy(private=True))
    assert set(loosened(Policy(), private)) == {"walls.private"}
    assert is_stricter_or_equal(private, Policy())


def test_a_refusal_names_every_looser_field() -> None:
    """Whoever is refused learns which fields to change, and only those."""
    looser = replace(load_policy("trusted"), language=load_policy("strict").language)
    named = loosened(looser, load_policy("default"))
    assert {"files.read", "files.write", "network", "limits.processes", "walls.require"} <= named.keys()
    assert not any(field.startswith("language") for field in named)
    assert named["network"] == "true, where the other has false"
    assert loosened(load_policy("strict"), looser) == {}


def test_fewer_required_walls_are_looser() -> None:
    """A session may not get away from a wall by naming another policy."""
    demanding = Policy(walls=WallPolicy(require=("seccomp",)))
    assert is_stricter_or_equal(demanding, Policy())
    assert not is_stricter_or_equal(Policy(), demanding)


def test_no_limit_on_refused_attempts_is_looser_than_any() -> None:
    """0 means that no number of attempts ends the session: a fork of a limited one may not have that."""
    endless, ten, two = (Policy(limits=Limits(refused_attempts=number)) for number in (0, 10, 2))
    assert set(loosened(endless, ten)) == set(loosened(ten, two)) == {"limits.refused_attempts"}
    assert loosened(two, ten) == loosened(ten, endless) == loosened(endless, endless) == {}


def test_paths_and_modules_inside_others_are_not_looser() -> None:
    """A folder inside a readable folder, a submodule of an admitted package."""
    outer = Policy(files=FilePolicy(read=("/data",)), language=LanguagePolicy(imports=("xml",)))
    inner = Policy(files=FilePolicy(read=("/data/x",)), language=LanguagePolicy(imports=("xml.etree",)))
    assert is_stricter_or_equal(inner, outer)
    assert not is_stricter_or_equal(outer, inner)
    beside = Policy(files=FilePolicy(read=("/database",)), language=LanguagePolicy(imports=("xmlrpc",)))
    assert not is_stricter_or_equal(beside, outer)


def test_the_comparison_is_an_order() -> None:
    """Every policy is as strict as itself, and strictness carries over."""
    policies = [*LOOSER.values(), *map(load_policy, SHIPPED)]
    stricter = [[is_stricter_or_equal(a, b) for b in policies] for a in policies]
    numbers = range(len(policies))
    assert all(stricter[a][a] for a in numbers)
    for a, b, c in itertools.product(numbers, repeat=3):
        assert stricter[a][c] or not (stricter[a][b] and stricter[b][c])


def test_resolved_paths_are_real(tmp_path: Path) -> None:
    """Variables, the home folder and symbolic links are followed once, before anything runs."""
    real = tmp_path / "real"
    real.mkdir()
    link = tmp_path / "link"
    link.symlink_to(real)
    policy = Policy(files=FilePolicy(read=("${workspace}/sub", "~/x", "/usr"), write=("${scratch}",)))
    resolved = resolve(policy, link, tmp_path / "scratch")
    assert resolved.files.read == (
        str(real / "sub"),
        str((Path.home() / "x").resolve()),
        str(Path("/usr").resolve()),
    )
    assert resolved.files.write == (str(tmp_path / "scratch"),)
    assert resolve(resolved, "/elsewhere", "/elsewhere") == resolved


@pytest.mark.parametrize("kind", ["own", "other", "below a link"])
def test_no_path_leads_over_a_link_that_a_session_could_replace(tmp_path: Path, kind: str) -> None:
    """Where it leads at the next start is not for a session to say; links elsewhere are the user's own."""
    for name in ("work", "open", "safe"):
        (tmp_path / name).mkdir()
    at = tmp_path / ("open" if kind == "other" else "work")
    (at / "data").symlink_to(tmp_path / "safe")
    (tmp_path / "link").symlink_to(at / "data")
    read = str(tmp_path / "link" if kind == "below a link" else at / "data" / "deep")
    policy = Policy(files=FilePolicy(read=(read,), write=("${workspace}",)))
    with pytest.raises(PolicyLinkError, match="could replace") as refused:
        resolve(policy, tmp_path / "work", tmp_path / "scratch", [str(tmp_path / "open")])
    assert refused.value.link == str(at / "data")
    (at / "data").unlink()
    (at / "data").mkdir()
    resolve(policy, tmp_path / "work", tmp_path / "scratch", [str(tmp_path / "open")])


def test_a_session_without_a_workspace_has_no_workspace_paths(tmp_path: Path) -> None:
    """Paths that name the workspace are dropped, not opened somewhere else."""
    resolved = resolve(load_policy("default"), None, tmp_path)
    assert resolved.files.read == (str(tmp_path),)


def test_a_workspace_named_like_a_variable_is_not_expanded_again(tmp_path: Path) -> None:
    """A hostile folder name stays a name."""
    workspace = tmp_path / "${scratch}"
    workspace.mkdir()
    resolved = resolve(Policy(files=FilePolicy(read=("${workspace}",))), workspace, "/secret")
    assert resolved.files.read == (str(workspace),)
