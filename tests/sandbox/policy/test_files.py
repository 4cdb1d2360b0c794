"""Policy files: found by name, merged with what they extend, and every mistake reported where it was made."""

import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_sandbox.errors import PolicyFileError, UnknownPolicyError
from rlm_sandbox.policy import MIB, Policy, load_policy, policy_directories, policy_names
from rlm_sandbox.policy.yaml_document import MAX_FILE_BYTES

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a policy file and return its path."""

    def write_file(text: str | bytes, name: str = "mine.yaml", folder: str = "user") -> Path:
        path = tmp_path / folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else textwrap.dedent(text).encode())
        return path

    return write_file


def refused(path: Path, directories: list[Path] | None = None) -> PolicyFileError:
    """The error that reading the file raises."""
    with pytest.raises(PolicyFileError) as caught:
        load_policy(path, directories=directories)
    return caught.value


def test_an_empty_mapping_is_the_closed_policy(write: Write) -> None:
    """A policy that allows nothing by name allows nothing."""
    policy = load_policy(write("{}"))
    assert policy == Policy(name="mine")
    assert (policy.language.imports, policy.files.read, policy.network) == ((), (), False)


def test_a_policy_is_found_by_its_name(write: Write) -> None:
    """Names are looked up in the user's folder first."""
    folder = write("description: my own\n").parent
    assert load_policy("mine", directories=[folder]).description == "my own"
    assert policy_names(directories=[folder]) == ["mine"]


def test_an_unknown_name_lists_the_known_ones(write: Write) -> None:
    """The message says what there is and how to add one."""
    folder = write("{}").parent
    with pytest.raises(UnknownPolicyError, match=r"'other'.*mine.*other\.yaml.*user") as caught:
        load_policy("other", directories=[folder])
    assert caught.value.known == ("mine",)


def test_an_edited_policy_is_read_anew(write: Write) -> None:
    """K-28: editing a policy changes the limits of the sessions that start afterwards."""
    assert load_policy(write("limits: {threads: 3}")).limits.threads == 3
    assert load_policy(write("limits: {threads: 44}")).limits.threads == 44


def test_the_users_folder_comes_first(isolation: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """RLM_KERNEL_CONFIG_DIR names it; a user's `default` replaces ours and can extend it."""
    monkeypatch.setenv("RLM_KERNEL_CONFIG_DIR", str(tmp_path))
    folder = tmp_path / "policies"
    folder.mkdir()
    (folder / "default.yaml").write_text("extends: default\nlimits: {cell_seconds: 5}\n")
    assert policy_directories()[0] == folder
    policy = load_policy("default")
    assert policy.limits.cell_seconds == 5
    assert "math" in policy.language.imports


def test_a_user_without_a_name_and_a_home_has_the_policies_that_ship(monkeypatch: pytest.MonkeyPatch) -> None:
    """As containers have them: the zygote, whose environment is empty, reads its policy and what Python consists of."""
    for variable in ("HOME", "XDG_CONFIG_HOME", "RLM_KERNEL_CONFIG_DIR"):
        monkeypatch.delenv(variable, raising=False)
    nobody = ["unshare", "--user", "--map-user=54321", "--map-group=54321"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*nobody, "true"], check=False, capture_output=True).returncode
    ):
        pytest.skip("this user may not make a user namespace")
    code = (
        "import os\nfrom rlm_sandbox.os_wall import readable\nfrom rlm_sandbox.policy import load_policy\n"
        "print(os.getuid(), load_policy('default').name, readable.python_paths() != ())"
    )
    done = subprocess.run([*nobody, sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["54321", "default", "True"], done.stderr


def test_a_policy_extends_another(write: Write) -> None:
    """What a file does not name is its parent's; sections merge, lists are replaced."""
    write("language: {imports: [math, json]}\nlimits: {cell_seconds: 7, threads: 3}\n", "base.yaml")
    path = write("extends: base\nlimits: {threads: 2}\nfiles: {read: ['${workspace}']}\n")
    policy = load_policy(path, directories=[path.parent])
    assert policy.language.imports == ("json", "math")
    assert (policy.limits.cell_seconds, policy.limits.threads) == (7, 2)
    assert policy.files.read == ("${workspace}",)
    assert (policy.name, policy.extends) == ("mine", "base")


def test_a_list_can_be_edited(write: Write) -> None:
    """``add`` and ``remove`` change the parent's list."""
    write("language: {imports: [math, json]}\n", "base.yaml")
    path = write("extends: base\nlanguage: {imports: {add: [re], remove: [math]}}\n")
    assert load_policy(path, directories=[path.parent]).language.imports == ("json", "re")


def test_a_section_of_a_parent_that_is_no_mapping_is_a_mistake(write: Write) -> None:
    """The fields of a child cannot be added to it; the message says which policy to correct."""
    write("limits: 3\n", "base.yaml")
    error = refused(path := write("extends: base\nlimits: {threads: 2}\n"), [path.parent])
    assert (error.file, error.line, error.field) == (path, 2, "limits")
    assert "a policy that this one extends" in str(error)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1024", 1024), ("512 MiB", 512 * MIB), ("2GiB", 2048 * MIB), ("64 KiB", 65536), ("7 B", 7)],
)
def test_sizes_are_numbers_or_have_units(write: Write, text: str, size: int) -> None:
    """Bytes as a number, or with a unit."""
    assert load_policy(write(f"limits: {{memory_bytes: {text}}}")).limits.memory_bytes == size


def test_words_that_yaml_1_1_took_for_booleans_are_words(write: Write) -> None:
    """``checkpoint: off`` and ``wall: off`` mean what they say."""
    policy = load_policy(write("checkpoint: off\nlanguage: {wall: off}\n"))
    assert (policy.checkpoint, policy.language.wall) == ("off", "off")


MISTAKES = {
    "an unknown field, with the one that was meant": (
        "limits:\n  cell_secs: 5\n",
        2,
        "limits.cell_secs",
        "did you mean 'cell_seconds'",
    ),
    "an unknown field, with what there is": ("frobnicate: 1\n", 1, "frobnicate", "the fields here are"),
    "a wrong type": ("limits:\n\n  threads: many\n", 3, "limits.threads", "whole number"),
    "text that is a number": ("limits: {threads: '3'}\n", 1, "limits.threads", "whole number"),
    "a number that is text": ("description: 3\n", 1, "description", "put it in quotes"),
    "a size without unit": ("limits: {memory_bytes: 5 cows}\n", 1, "limits.memory_bytes", "512 MiB"),
    "a negative limit": ("limits:\n  cell_seconds: -1\n", 2, "limits.cell_seconds", "greater than 0"),
    "an infinite limit": ("limits: {cell_seconds: 1.0e999}\n", 1, "limits.cell_seconds", "finite"),
    "more seconds than a date has": (
        "limits: {rest_seconds: 1.0e18}\n",
        1,
        "limits.rest_seconds",
        "or equal to 1000000000",
    ),
    "more bytes than the system counts": (
        "limits:\n  memory_bytes: 8589934592 GiB\n",
        2,
        "limits.memory_bytes",
        "or equal to",
    ),
    "more tokens than the database counts": (
        f"limits: {{query_tokens: {2**63}}}\n",
        1,
        "limits.query_tokens",
        "or equal to",
    ),
    "a truth that is a word": ("network: yes\n", 1, "network", "write true or false"),
    "an unknown choice": ("checkpoint: sometimes\n", 1, "checkpoint", "'off', 'lazy', 'strict' or 'durable'"),
    "a list that is a word": ("language: {imports: math}\n", 1, "language.imports", "should be a list (found 'math')"),
    "a section that is a list": ("limits: [1]\n", 1, "limits", "should be a mapping of fields (found (1,))"),
    "an item of a list": (
        "walls:\n  require:\n    - seccomp\n    - moat\n",
        4,
        "walls.require[1]",
        "'language'",
    ),
    "a module that is none": (
        "language:\n  imports: [a-b]\n",
        2,
        "language.imports",
        "'a-b' is not a module",
    ),
    "a name that is none": (
        "language: {blocked_names: [a b]}\n",
        1,
        "language.blocked_names",
        "'a b' is not a name",
    ),
    "an unknown variable": ("files: {read: ['${home}/x']}\n", 1, "files.read", "${workspace}"),
    "a relative path": ("files:\n  write: [data]\n", 2, "files.write", "must start with"),
    "a path that climbs": ("files: {read: ['${workspace}/../x']}\n", 1, "files.read", "no `..`"),
    "a wall that is off and required": (
        "language: {wall: off}\nwalls: {require: [language]}\n",
        1,
        "",
        "under language.wall: off the wall language is never active: remove it from walls.require\n`rlm",
    ),
    "a wall that is not for the network": (
        "network: true\nwalls: {require: [namespaces]}\n",
        1,
        "",
        "under network: true the wall namespaces is never active",
    ),
    "a field given twice": ("network: true\nnetwork: false\n", 2, "network", "given twice"),
    "a name that is not the file's": ("name: other\n", 1, "name", "'mine'"),
    "a parent that does not exist": ("extends: nowhere\n", 1, "extends", "no policy named 'nowhere'"),
    "a parent that is a number": ("extends: 5\n", 1, "extends", "name of one policy"),
    "an edit of what is not a list": ("network: {add: [x]}\n", 1, "network", "plain value"),
    "an edit with an unknown key": ("language: {imports: {plus: [x]}}\n", 1, "language.imports", "add"),
    "a removal of a stranger": (
        "language:\n  imports:\n    remove: [x]\n",
        3,
        "language.imports.remove",
        "not in the list",
    ),
    "broken YAML": ("limits:\n  threads: [1\n", 3, "", "not valid YAML"),
    "a tab": ("limits:\n\tthreads: 1\n", 2, "", "not valid YAML"),
    "a list": ("- a\n", 1, "", "a policy is a mapping"),
    "nothing": ("", 1, "", "a policy is a mapping"),
    "an alias": ("description: &a x\nname: *a\n", 1, "", "anchors and aliases"),
    "a number as field": ("5: x\n", 1, "", "not a field name"),
    "two documents": ("{}\n---\n{}\n", 2, "", "not valid YAML"),
    "a Python object": ("name: !!python/name:os.system\n", 1, "", "not valid YAML"),
}


@pytest.mark.parametrize(("text", "line", "field", "advice"), MISTAKES.values(), ids=list(MISTAKES))
def test_a_mistake_is_reported_with_file_line_and_field(
    write: Write, text: str, line: int, field: str, advice: str
) -> None:
    """Every message names the place and says what to write instead."""
    path = write(text)
    error = refused(path)
    assert (error.file, error.line, error.field) == (path, line, field)
    assert advice in str(error)
    assert str(error).startswith(f"{path}:{line}: {field}")


def test_every_mistake_of_a_file_is_reported_at_once(write: Write) -> None:
    """One run of `policy check` shows them all."""
    error = refused(write("network: maybe\nlimits:\n  threads: 0\n  foo: 1\n"))
    assert sorted((problem.line, problem.field) for problem in error.problems) == [
        (1, "network"),
        (3, "limits.threads"),
        (4, "limits.foo"),
    ]


def test_a_mistake_in_a_parent_is_reported_in_the_parents_file(write: Write) -> None:
    """The message leads to the file that must be repaired."""
    base = write("limits:\n  threads: none\n", "base.yaml")
    path = write("extends: base\nlimits: {cell_seconds: 3}\n")
    error = refused(path, [path.parent])
    assert (error.file, error.line, error.field) == (base, 2, "limits.threads")


def test_policies_that_extend_each_other_are_refused(write: Write) -> None:
    """A circle is found and named."""
    path = write("extends: other\n")
    write("extends: mine\n", "other.yaml")
    error = refused(path, [path.parent])
    assert error.field == "extends"
    assert "extends this policy in turn" in str(error)


@pytest.mark.parametrize(
    ("content", "advice"),
    [(b"\xff\xfe", "UTF-8"), (b"#" * (MAX_FILE_BYTES + 1), "larger than"), (b"a: \x00", "not valid YAML")],
    ids=["not-utf-8", "too-large", "a-null-byte"],
)
def test_files_that_are_no_text_are_refused(write: Write, content: bytes, advice: str) -> None:
    """Whatever is in the file, the answer is an error that says what to do."""
    assert advice in str(refused(write(content)))


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    """A wrong path is an error of the same kind."""
    for path in (tmp_path / "missing.yaml", tmp_path):
        assert "check its path and permissions" in str(refused(path))


def test_deep_nesting_is_refused(write: Write) -> None:
    """A file made to exhaust the parser ends in an error."""
    assert "not valid YAML" in str(refused(write("a: " + "[" * 20000)))


@given(st.text(st.characters(codec="utf-8"), max_size=200))
def test_any_text_is_a_policy_or_an_error_that_says_where(text: str) -> None:
    """No file crashes the reader."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "mine.yaml")
        path.write_text(text, encoding="utf-8", newline="")
        assert outcome(path) >= 0


def outcome(path: Path) -> int:
    """The line of the first mistake in a policy file, 0 when there is none."""
    try:
        load_policy(path)
    except PolicyFileError as error:
        return error.line
    return 0
