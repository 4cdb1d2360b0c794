"""``rlm-kernel doctor``: check what works on this machine, and say how to fix the rest."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from rlm_ipc import discovery
from rlm_ipc.daemon_connection import ask, the_socket
from rlm_ipc.daemon_requests import Tidy
from rlm_ipc.errors import DaemonUnavailable
from rlm_ipc.extras import command_for, extra_command, requirements_of
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.session_requests import ListSessions
from rlm_ipc.version import VERSION
from rlm_mcp.cli.output import FAILED, JsonFlag, console, counted, show, size
from rlm_sandbox.errors import PolicyFileError, SandboxError

if TYPE_CHECKING:
    from rlm_sandbox.os_wall.report import Wall

MARKS = {True: "[green]ok[/]     ", False: "[red]FAILS[/]  ", None: "[yellow]missing[/]"}
EXTRAS = ("data", "query", "documents", "urls", *(("zstd",) if sys.version_info < (3, 14) else ()))
"""The extras for the policy `data`, for SQL and for more sources; see docs/dependencies.md."""


@dataclass(frozen=True)
class DoctorCheck:
    """The result of one check.

    ``ok`` is false if rlm-kernel cannot work without this, and ``None`` if it can. ``fix`` says what to do about
    either. The passed checks of one ``group`` are printed as one line. ``file`` is the user's own file that has an
    error, if everything else works without it.
    """

    name: str
    ok: bool | None
    detail: str
    fix: str = ""
    group: str = ""
    file: str = ""


def checks() -> Iterator[DoctorCheck]:
    """Run every check. One that raises an unexpected error counts as failed."""
    looks = (
        _python, _packages, _folders, _daemon, _supervisor, _kept, _policies, _walls, _kernelspec, _clients, _models,
    )  # fmt: skip
    for check in looks:
        try:
            yield from check()
        except discovery.DiscoveryError:
            continue  # the check of the folders reports it
        except Exception as error:
            name = check.__name__.strip("_")
            yield DoctorCheck(name, False, f"{type(error).__name__}: {error}", "please report this as a bug")


def _python() -> Iterator[DoctorCheck]:
    yield DoctorCheck("Python", True, f"{sys.version.split()[0]} at {sys.executable}")
    linux = sys.platform == "linux"
    yield DoctorCheck(
        "system",
        linux or None,
        sys.platform,
        "" if linux else "the OS wall needs Linux; see `rlm-kernel docs limitations`",
    )


# --- packages -------------------------------------------------------------------------------------


def _packages() -> Iterator[DoctorCheck]:
    try:
        required = importlib.metadata.requires("rlm-kernel") or []
    except importlib.metadata.PackageNotFoundError:
        fix = f"in the checkout: {command_for(['.'])}"
        yield DoctorCheck("rlm-kernel", None, f"{VERSION}, not installed as a package", fix)
        return
    yield DoctorCheck("rlm-kernel", True, VERSION)
    for requirement in required:
        if "extra ==" not in requirement:
            yield replace(package(requirement), group="packages")
    yield from map(_extra, EXTRAS)


def _extra(extra: str) -> DoctorCheck:
    """Check the packages of an extra. rlm-kernel works without them."""
    required = requirements_of(extra)
    packages = [package(requirement) for requirement in required]
    if all(package.ok for package in packages):
        return DoctorCheck(
            f"extra {extra}", True, ", ".join(f"{package.name} {package.detail}" for package in packages)
        )
    lacking = "; ".join(f"{package.name}: {package.detail}" for package in packages if not package.ok)
    wanted = [requirement for requirement, found in zip(required, packages, strict=True) if not found.ok]
    return DoctorCheck(f"extra {extra}", None, lacking, command_for(wanted))


def package(requirement: str) -> DoctorCheck:
    """Check one requirement of ours, such as ``mcp>=2.3``."""
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    name = match[0] if match else requirement
    lowest = re.search(r">=\s*([0-9.]+)", requirement)
    fix = command_for([requirement])
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return DoctorCheck(name, False, "not installed", fix)
    ok = lowest is None or _numbers(version) >= _numbers(lowest[1])
    return DoctorCheck(
        name,
        ok,
        version if ok else f"{version} is older than {lowest[1] if lowest else ''}",
        "" if ok else fix,
    )


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version; our lower bounds have nothing else."""
    return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[a-z+]", version)[0]))


# --- folders and processes ------------------------------------------------------------------------


def _folders() -> Iterator[DoctorCheck]:
    for name, find in (("runtime folder", discovery.runtime_dir), ("state folder", discovery.state_dir)):
        try:
            full = discovery.is_full(folder := find())
            detail = f"{folder} (its disk is full)" if full else str(folder)
            yield DoctorCheck(name, not full, detail, "free space on that disk" if full else "")
        except discovery.DiscoveryError as error:
            yield DoctorCheck(name, False, error.what, error.fix)


def _daemon() -> Iterator[DoctorCheck]:
    yield _server("daemon", Path(the_socket()), "it starts with the first client, or: rlm-kernel daemon start")


def _supervisor() -> Iterator[DoctorCheck]:
    yield _server("supervisor", discovery.runtime_dir() / "supervisor.sock", "it starts with the first cell")


def _server(name: str, path: Path, when: str) -> DoctorCheck:
    """Check whether the process at a socket path is alive and accepts connections."""
    sock = discovery.connect(path)
    if sock is None:
        if discovery.is_claimed(path):
            fix = "wait a few seconds; if that does not help, run: rlm-kernel daemon stop"
            return DoctorCheck(name, False, f"running, but not listening at {path}", fix)
        return DoctorCheck(name, True, f"not running; {when}")
    with sock:
        return DoctorCheck(name, True, f"process {discovery.peer(sock).pid} at {path}")


def _kept() -> Iterator[DoctorCheck]:
    """List the suspended sessions of a running daemon."""
    try:
        rows = ask(ListSessions()).resting
    except DaemonUnavailable:
        return
    for row in rows:
        pending, until = len(row.pending_llm_queries), row.kept_until or "someone ends it"
        asked = counted(pending, "unanswered query", "unanswered queries")
        held = f"{size(row.content_bytes)} of texts, {asked}"
        fix = f"to free this now, answer its queries, or run: {shlex.join(['rlm-kernel', 'end', row.session])}"
        yield DoctorCheck(f"session {row.session}", True, f"suspended with {held}, kept until {until}", fix)


def _tidied() -> DoctorCheck:
    """Have a running daemon end sessions that are due, and delete texts that no session can reach."""
    try:
        freed = ask(Tidy()).freed_bytes
    except DaemonUnavailable:
        return DoctorCheck("unreachable texts", True, "no daemon is running; the next one deletes them as it starts")
    return DoctorCheck("unreachable texts", True, f"{size(freed)} freed" if freed else "none")


# --- policies and walls ---------------------------------------------------------------------------


def _policies() -> Iterator[DoctorCheck]:
    from rlm_sandbox.policy import load_policy, policy_names

    for name in policy_names():
        try:
            yield DoctorCheck(f"policy {name}", True, load_policy(name).description, group="policies")
        except SandboxError as error:
            needed = name in {"default", os.environ.get("RLM_KERNEL_POLICY")}
            file = str(error.file) if isinstance(error, PolicyFileError) and not needed else ""
            yield DoctorCheck(f"policy {name}", False, str(error), "correct the file, or remove it", file=file)


def _walls() -> Iterator[DoctorCheck]:
    from rlm_sandbox.os_wall.probe import probe
    from rlm_sandbox.policy import load_policy

    policy = os.environ.get("RLM_KERNEL_POLICY") or "default"
    required: Iterable[str] = ()
    with suppress(SandboxError):  # a policy that cannot be read was told already
        required = load_policy(policy).walls.require
    yield from wall_checks(probe(), policy, required)


def wall_checks(found: Mapping[str, Wall], policy: str, required: Iterable[str]) -> Iterator[DoctorCheck]:
    """Check the walls that were tried here. A session that opens under ``policy`` needs those that are ``required``."""
    for name, wall in found.items():
        if wall.standing:
            yield DoctorCheck(f"wall {name}", True, wall.detail)
        elif name in required:
            fix = f"no session starts under the policy {policy}, which requires it; see `rlm-kernel docs policies`"
            yield DoctorCheck(f"wall {name}", False, wall.detail, fix)
        else:
            yield DoctorCheck(f"wall {name}", None, wall.detail, "policies that require it refuse to start")


def _kernelspec() -> Iterator[DoctorCheck]:
    """Check which Jupyter installations list the kernel: all of this user, or only that of this environment."""
    from jupyter_client.kernelspec import KernelSpecManager

    from rlm_kernel.jupyter import kernelspecs  # here alone, as each command loads this module

    started, folder = kernelspecs.starts_here(), kernelspecs.kernels_folder() / kernelspecs.KERNEL
    fix = "run `rlm-kernel daemon start` to register it for all your Jupyter installations"
    if kernelspecs.is_startable(started):
        yield DoctorCheck(
            "Jupyter kernelspec", True, f"{folder}, for all your Jupyter installations; it starts {started}"
        )
    elif started:
        yield DoctorCheck("Jupyter kernelspec", None, f"{folder} starts {started}, which does not exist", fix)
    else:
        found = KernelSpecManager().find_kernel_specs().get(kernelspecs.KERNEL)
        where = f"only Jupyter in this environment lists it ({found})" if found else "no Jupyter lists it"
        yield DoctorCheck("Jupyter kernelspec", None, where, fix)


def _clients() -> Iterator[DoctorCheck]:
    from rlm_mcp.cli.client_files import configured, is_installed
    from rlm_mcp.cli.clients import CLIENTS

    seen, found_any = set[Path](), False
    for name, client in CLIENTS.items():
        installed = is_installed(name)
        for found in configured(name, Path.cwd()):
            if found.path in seen and not installed:  # a client that reads the file of another one
                continue
            seen.add(found.path)
            detail = f"{found.path} starts {found.program}"
            if found.starts:
                yield DoctorCheck(f"client {name}", True, detail)
            else:
                fix = f"correct the file; `rlm-kernel config {name}` prints what belongs there"
                yield DoctorCheck(f"client {name}", False, f"{detail}, which does not exist", fix)
            break
        else:
            if installed:
                found_any = True
                fix = f"to configure it, run: rlm-kernel config {name}"
                yield DoctorCheck(
                    f"client {name}", None, f"{client.title} is not configured for rlm-kernel in this folder", fix
                )
    if not (seen or found_any):
        yield DoctorCheck(
            "clients",
            None,
            "no agent program was found",
            f"install one ({', '.join(CLIENTS)}), or use your own MCP client",
        )


def _models() -> Iterator[DoctorCheck]:
    from rlm_client.models.errors import ModelMisconfigured
    from rlm_client.models.settings import load_settings, settings_file

    try:
        settings = load_settings()
    except ModelMisconfigured as error:
        yield DoctorCheck("language models", False, str(error), f"correct {settings_file()} or RLM_KERNEL_MODEL")
        return
    if settings is None:
        fix = (
            f"only `llm.mode: provider` and `rlm-kernel ask` need one; write {settings_file()}, or set RLM_KERNEL_MODEL"
        )
        yield DoctorCheck("language models", None, "none is configured", fix)
        return
    for name, endpoint in settings.models.items():
        default = ", the default" if name == settings.default else ""
        try:
            missing = endpoint.missing()
        except ModelMisconfigured as error:
            yield DoctorCheck(
                f"model {name}", None, str(error), "doctor looks for keys in this shell; the daemon may have others"
            )
        else:
            fix = extra_command("providers") if missing else ""
            yield DoctorCheck(
                f"model {name}", None if missing else True, missing or f"{endpoint.where()}{default}", fix
            )


# --- the command ----------------------------------------------------------------------------------


def doctor(
    tidy: Annotated[
        bool, typer.Option("--tidy", help="Also delete texts that no session can reach, if the daemon is running.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Check what works on this machine and how to fix what does not. Exit code 1: a required check fails.

    Example: `rlm-kernel doctor`
    """
    found = [*checks(), *([_tidied()] if tidy else [])]
    healthy = all(check.ok is not False for check in found)
    show({"healthy": healthy, "checks": [asdict(check) for check in found]}, as_json, lambda: _print(found))
    if not healthy:
        raise typer.Exit(FAILED)


def _print(found: list[DoctorCheck]) -> None:
    for check in _shortened(found):
        console.print(f"{MARKS[check.ok]} [bold]{check.name}[/]: ", end="")
        console.print(check.detail, markup=False)
        if check.fix:
            console.print(f"        → {check.fix}", markup=False)
    console.print(f"\n{_verdict(found)}")


def _shortened(found: list[DoctorCheck]) -> Iterator[DoctorCheck]:
    """Yield the checks, with the passed ones of each group as one line that counts them."""
    passed = Counter(check.group for check in found if check.group and check.ok)
    for check in found:
        if not check.group or not check.ok:
            yield check
        elif number := passed.pop(check.group, 0):
            yield DoctorCheck(check.group, True, f"{number} checked")


def _verdict(found: list[DoctorCheck]) -> str:
    failing = [check.name for check in found if check.ok is False]
    missing = [check.name for check in found if check.ok is None]
    files = [check.file for check in found if check.ok is False and check.file]
    if failing and len(files) == len(failing):
        mistakes = counted(len(files), "of your files has errors", "of your files have errors")
        return f"[yellow]rlm-kernel works here, but {mistakes}:[/] {escape(', '.join(dict.fromkeys(files)))}"
    if failing:
        count = counted(len(failing), "check fails", "checks fail")
        return f"[red]rlm-kernel does not work here:[/] {count}: {', '.join(failing)}"
    if missing:
        count = counted(len(missing), "optional part is missing", "optional parts are missing")
        return f"[green]rlm-kernel works here.[/] {count}: {', '.join(missing)}"
    return "[green]rlm-kernel works here, and nothing is missing.[/]"
