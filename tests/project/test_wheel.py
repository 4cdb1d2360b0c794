"""What a user installs holds everything, and works wherever it is started."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from waiting import PROGRAM_SECONDS

PACKAGES = {
    "rlm_ipc": "ipc",
    "rlm_sandbox": "sandbox",
    "rlm_memory": "memory",
    "rlm_contexts": "contexts",
    "rlm_lock": "lock",
    "rlm_client": "client",
    "rlm_kernel": "kernel",
    "rlm_mcp": "mcp_server",
}
HOSTILE = "raise SystemExit('a file of the user was imported')\n"
SHADOWS = ("kernel", "yaml", "mcp", "re2", "memory", "sandbox/__init__", "mcp_server/__init__")


def _run(command: Sequence[str | Path], cwd: Path, **environment: str) -> str:
    result = subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def _build(kind: str, source: Path, folder: Path, **environment: str) -> Path:
    code = f"import sys; from hatchling.build import build_{kind} as build; print(build(sys.argv[1]))"
    return folder / _run([sys.executable, "-c", code, folder], source, **environment).split()[-1]


def _site_packages(python: str | Path) -> Path:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(_run([python, "-c", code], Path.cwd()).strip())


@pytest.fixture(scope="module")
def unpacked(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source distribution, and unpack it."""
    folder = tmp_path_factory.mktemp("sdist")
    archive = _build("sdist", root, tmp_path_factory.mktemp("dist"))
    _run(["tar", "-xzf", archive, "-C", folder, "--strip-components=1"], root)
    return folder


@pytest.fixture(scope="module")
def wheel(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the source distribution, as a release does."""
    return _build("wheel", unpacked, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def contents(wheel: Path) -> set[str]:
    """Return the names in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into an environment of its own, which sees the dependencies of this one."""
    folder = tmp_path_factory.mktemp("env")
    _run([sys.executable, "-m", "venv", "--without-pip", folder], folder)
    python = folder / "bin" / "python"
    uv = Path(sys.executable).with_name("uv")
    _run([uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", python, wheel], folder)
    # A path in a .pth file adds the dependencies, but not the .pth of this checkout's editable installation.
    (_site_packages(python) / "dependencies.pth").write_text(f"{_site_packages(sys.executable)}\n")
    return python


def test_the_top_levels_are_exactly_the_seven_packages(contents: set[str]) -> None:
    """Nothing generic (`kernel`, `sandbox`, `tests`) becomes importable by installing this."""
    top = {name.split("/")[0] for name in contents}
    metadata = {name for name in top if name.startswith("rlm_kernel-")}
    assert top - metadata == set(PACKAGES)


def test_every_module_page_policy_and_marker_is_in_it(contents: set[str], source_files: list[Path], root: Path) -> None:
    """What the checkout has, the wheel has."""
    modules = {str(path.relative_to(root)).split("/", 1)[1] for path in source_files}
    policies = {f"rlm_sandbox/{path.relative_to(root)}" for path in (root / "policies").rglob("*.yaml")}
    markers = {f"{package}/py.typed" for package in PACKAGES}
    skills = {f"rlm_mcp/{path.relative_to(root)}" for path in (root / "skills").rglob("*.md")}
    page = {str(path.relative_to(root / "mcp_server")) for path in (root / "mcp_server/rlm_mcp/web/static").iterdir()}
    pages = {path.name for path in (*root.glob("docs/*.md"), *root.glob("*.md"))} - {"CONTRIBUTING.md"}
    docs = {f"rlm_mcp/docs/{name}" for name in pages}
    assert policies
    assert page
    assert skills
    assert (modules | policies | markers | page | skills | docs) - contents == set()


def test_the_wheel_has_the_compiled_modules(root: Path, contents: set[str], wheel: Path) -> None:
    """It is for this version of Python and this kind of machine only."""
    parts = [root / name for name in ("contexts", "kernel", "sandbox")]
    sources = [path.relative_to(root) for part in parts for path in part.rglob("*.c")]
    modules = {str(Path(*source.parts[1:]).with_suffix("")) for source in sources}
    found = {match[1] for name in contents if (match := re.fullmatch(r"(.*)\.cpython-.*\.so", name))}
    assert modules
    assert found == modules
    assert not wheel.name.endswith("-py3-none-any.whl")


def test_without_a_compiler_the_build_says_what_to_install(unpacked: Path, tmp_path: Path) -> None:
    """The language wall does not work without its part in C: nothing is installed that looks as if it did."""
    older = (unpacked / "sandbox/rlm_sandbox/language_wall/_core").with_suffix(sysconfig.get_config_var("EXT_SUFFIX"))
    older.touch()
    with pytest.raises(AssertionError, match="Install a C compiler"):
        _build("wheel", unpacked, tmp_path, PATH=str(tmp_path))
    assert not older.exists()


def test_the_kernelspec_names_the_provisioner(contents: set[str], wheel: Path) -> None:
    """K-28: `jupyter console --kernel rlm` finds the kernel after a plain installation."""
    [name] = [name for name in contents if name.endswith("share/jupyter/kernels/rlm/kernel.json")]
    with zipfile.ZipFile(wheel) as archive:
        spec = json.loads(archive.read(name))
    assert spec["metadata"]["kernel_provisioner"]["provisioner_name"] == "rlm-provisioner"
    assert "{connection_file}" in spec["argv"]
    assert any(name.endswith("share/jupyter/kernels/rlm/logo-svg.svg") for name in contents)


def test_the_installed_kernelspec_is_found_by_jupyter(installed: Path, tmp_path: Path) -> None:
    """K-28: Jupyter lists the kernel of this environment, without any step after the installation."""
    code = (
        "from jupyter_client.kernelspec import KernelSpecManager\n"
        "print(KernelSpecManager().get_kernel_spec('rlm').resource_dir)"
    )
    expected = installed.parents[1] / "share/jupyter/kernels/rlm"
    assert _run([installed, "-c", code], tmp_path).strip() == str(expected)


def test_the_entry_points_load(installed: Path, tmp_path: Path) -> None:
    """The command and the provisioner that the metadata name exist."""
    code = (
        "from importlib.metadata import entry_points as e\n"
        "print([p.load().__name__ for g in ('console_scripts', 'jupyter_client.kernel_provisioners')"
        " for p in e(group=g) if p.name.startswith('rlm-')])"
    )
    assert _run([installed, "-P", "-c", code], tmp_path).strip() == "['main', 'RlmProvisioner']"


def test_the_installed_command_has_the_skill(installed: Path, tmp_path: Path, root: Path) -> None:
    """K-27: who installs the wheel has no checkout to copy it from."""
    skill, program = (root / "skills/context-kernel/SKILL.md").read_text(), installed.with_name("rlm-kernel")
    assert _run([program, "skill"], tmp_path) == skill
    _run([program, "skill", "--install", "claude-code"], tmp_path)
    assert (tmp_path / ".claude/skills/context-kernel/SKILL.md").read_text() == skill


def test_the_installed_command_has_the_documentation(installed: Path, tmp_path: Path, root: Path) -> None:
    """Errors name pages, which an installation has to have."""
    program = installed.with_name("rlm-kernel")
    assert _run([program, "docs", "queries"], tmp_path) == (root / "docs/queries.md").read_text("utf-8")
    assert json.loads(_run([program, "docs", "--json"], tmp_path))["security"] == "Security"


@pytest.mark.usefixtures("ended")
def test_it_works_in_a_folder_whose_files_bear_our_names(installed: Path, tmp_path: Path) -> None:
    """The user's own kernel.py, sandbox/ and yaml.py are never imported instead of what they shadow."""
    for name in SHADOWS:
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(HOSTILE)
    program = installed.with_name("rlm-kernel")
    assert _run([program, "run", "--session", "shadows", "print('it', 'works')"], tmp_path) == "it works\n"
