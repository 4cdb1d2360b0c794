"""``rlm-kernel policy list|show|check|schema|apply``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Annotated

import typer

from rlm_ipc.messages import plain
from rlm_mcp.cli.completion import policy_choices, session_choices
from rlm_mcp.cli.output import Commands, JsonFlag, console, show, table
from rlm_sandbox.errors import PolicyError

app = Commands(help="Show, check and apply policies: what sessions may do.", no_args_is_help=True)

PolicyName = Annotated[
    str, typer.Argument(help="Name of a policy, or path of a YAML file.", autocompletion=policy_choices)
]


@app.command("list")
def list_policies(as_json: JsonFlag = False) -> None:
    """List the available policies.

    Example: `rlm-kernel policy list`
    """
    from rlm_sandbox.policy import load_policy, policy_names

    policies: list[dict[str, str]] = []
    for name in policy_names():
        try:
            policies.append({"name": name, "description": load_policy(name).description})
        except PolicyError as error:
            policies.append({"name": name, "error": str(error)})
    rows = [(row["name"], row.get("description") or f"cannot be used: {row['error']}") for row in policies]
    show({"policies": policies}, as_json, lambda: table("policies", ("name", "description"), rows))


@app.command("show")
def show_policy(name: PolicyName, as_json: JsonFlag = False) -> None:
    """Show a complete policy, with inherited values and defaults.

    Example: `rlm-kernel policy show data`
    """
    import yaml

    from rlm_sandbox.policy import load_policy

    policy = load_policy(name)
    show(plain(policy), as_json, lambda: print(yaml.safe_dump(plain(policy), sort_keys=False), end=""))


@app.command("check")
def check_policy(
    path: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="YAML file to check.")],
    as_json: JsonFlag = False,
) -> None:
    """Check a policy file, and report an error with its line and field. Exit code 1: the file has errors.

    Example: `rlm-kernel policy check mine.yaml`
    """
    from rlm_sandbox.policy import load_policy

    policy = load_policy(path)
    packages = dict.fromkeys(module.partition(".")[0] for module in policy.language.imports)
    loaded = {"*", *sys.modules}  # `find_spec` raises for `__main__`
    absent = [name for name in packages if name not in loaded and importlib.util.find_spec(name) is None]
    data = {"valid": True, "name": policy.name, "file": str(path), "not_installed": absent}
    message = f"{path} is a valid policy named {policy.name}"
    if absent:
        message += f"\nit admits imports that are not installed in rlm-kernel's own Python: {', '.join(absent)}"
    show(data, as_json, lambda: console.print(message, markup=False))


@app.command("apply")
def apply_policy(
    session: Annotated[
        str, typer.Argument(help="The session; it must not have ended.", autocompletion=session_choices)
    ],
    policy: PolicyName,
    looser: Annotated[
        bool, typer.Option("--looser", help="Confirm a policy that permits more than the current one.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Give a session another policy. Its kernel and all variables are lost; loaded texts are kept.

    Example: `rlm-kernel policy apply work strict`
    """
    from rlm_ipc.daemon_connection import ask
    from rlm_ipc.json_lines import named_policy
    from rlm_ipc.messages import plain
    from rlm_ipc.session_requests import ApplyPolicy

    show(plain(ask(ApplyPolicy(session, named_policy(policy), looser), start=True)), as_json)


@app.command("schema")
def schema(as_json: JsonFlag = False) -> None:
    """Show every field of a policy file; with --json, the JSON schema for editors.

    Example: `rlm-kernel policy schema`
    """
    from rlm_sandbox.policy import policy_fields, policy_schema

    rows = [(field.name, field.type, field.default, field.description) for field in policy_fields()]
    show(policy_schema(), as_json, lambda: table("policy", ("field", "type", "default", "meaning"), rows))
