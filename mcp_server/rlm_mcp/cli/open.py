"""``rlm-kernel open``: open a live session in JupyterLab or an editor, with the notebook of its cells."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rlm_mcp.cli.attachments import TrustedFlag, YesFlag, make
from rlm_mcp.cli.completion import session_choices
from rlm_mcp.cli.notebooks import as_text, default_file, is_export, record_of, write
from rlm_mcp.cli.output import JsonFlag, PolicyOption, console, show
from rlm_mcp.cli.sessions import open_under
from rlm_mcp.errors import SetupFault


class Editor(StrEnum):
    """The program that opens the notebook."""

    LAB = "lab"
    CODE = "code"


def open_session(
    context: typer.Context,
    session: Annotated[str, typer.Argument(help="Session to open.", autocompletion=session_choices)],
    file: Annotated[
        Path | None, typer.Option("--file", dir_okay=False, help="Notebook to open; default: SESSION.ipynb here.")
    ] = None,
    editor: Annotated[Editor, typer.Option(help="JupyterLab, or VS Code.")] = Editor.LAB,
    watch: Annotated[bool, typer.Option("--watch", help="Only show what happens; run nothing.")] = False,
    trusted: TrustedFlag = False,
    yes: YesFlag = False,
    policy: PolicyOption = None,
    print_only: Annotated[bool, typer.Option("--print", help="Write the notebook and print how to open it.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Open a live session in JupyterLab (or an editor), with a notebook of the cells that ran in it.

    If the session does not exist yet, it is opened under --policy. An existing notebook is overwritten unless it has
    cells of your own. Arguments after `--` go to the program.

    Example: `rlm-kernel open work`
    """
    open_under(session, policy, as_json)
    attachment = make(session, watch=watch, trusted=trusted, yes=yes)
    path = file or default_file(session)
    record = replace(record_of(session), kernelspec=attachment.kernelspec)
    overwrite = not path.exists() or is_export(path, record)
    if overwrite:
        write(path, as_text(record))
    data = {"session": session, "file": str(path), "kernelspec": attachment.kernelspec, "written": overwrite}
    if print_only:
        show(data, as_json)
        return
    command = [*_program(editor, path, attachment.kernelspec), str(path), *context.args]
    kept = "" if overwrite else " unchanged, because it has cells that the session does not have"
    show(
        data | {"command": command}, as_json, lambda: console.print(f"opening {path}{kept}; close it whenever you like")
    )
    sys.stdout.flush()
    if editor is Editor.LAB:
        os.execvp(command[0], command)
    subprocess.run(command, check=False)


def _program(editor: Editor, path: Path, kernelspec: str) -> list[str]:
    """Return the command of an editor; raises SetupFault if it is not installed."""
    otherwise = (
        f"or open {path} in any other Jupyter front end, with the kernel {kernelspec}. In a terminal: `pip install "
        f"jupyter-console`, `jupyter console --kernel {kernelspec}`. Without Jupyter: `rlm-kernel web --open`"
    )
    if editor is Editor.CODE:
        found = shutil.which("code")
        if found is None:
            raise SetupFault(f"VS Code's command `code` is not installed; install it, {otherwise}")
        return [found]
    if importlib.util.find_spec("jupyterlab") is not None:
        return [sys.executable, "-m", "jupyterlab"]
    found = shutil.which("jupyter-lab")
    if found is None:
        where = "`pip install jupyterlab`, into any environment on your PATH"
        raise SetupFault(f"JupyterLab is not installed; install it ({where}), {otherwise}")
    return [found]
