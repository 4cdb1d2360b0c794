"""What to do about an error that does not say so itself; appended to its last line."""

from __future__ import annotations

import re
import sys
import types
from typing import TYPE_CHECKING

from IPython.core.error import StdinNotImplementedError

from rlm_kernel.worker import file_advice
from rlm_kernel.worker.magics.refusals import HERE, sentence
from rlm_sandbox.language_wall.audit_hook import AuditRefused
from rlm_sandbox.language_wall.modules.tables import FETCHED

if TYPE_CHECKING:
    from rlm_sandbox.policy.model import Policy

_INSTALLS = re.compile(r"\s*(pip|conda|mamba|uv)\s+\w")
"""What IPython takes for a magic if it stands alone, and what a session takes for Python."""


def advice(error: BaseException, policy: Policy) -> str:
    """Return what to do about an error of a cell under ``policy``; empty if nothing is known."""
    if isinstance(error, MemoryError):
        most = policy.limits.memory_bytes >> 20
        return (
            f"The session may hold {most:,} MiB (limits.memory_bytes of its policy): `del` what you no longer need, "
            "or work on one part after the other. What cells ended in (`_`, `Out`) is no longer kept"
        )
    if type(error) is AuditRefused and _said(error).startswith(("socket.", "urllib.")):
        return FETCHED[0].upper() + FETCHED[1:]
    if type(error) is RuntimeError and _said(error) == "can't start new thread":
        return (
            f"The session may have {policy.limits.threads} threads (limits.threads of its policy), and each reserves "
            "8 MiB of its memory: let a ThreadPoolExecutor(max_workers=8) share the work"
        )
    if type(error) is AttributeError and (module := _without(error)) is not None:
        return f"Sessions have {module} without it, for safety: dir({module}) lists what there is"
    if type(error) is NameError and error.name == "get_ipython":
        return f"Sessions have no get_ipython, which could change IPython itself. Of its magics {HERE}"
    if type(error) is StdinNotImplementedError:
        return "Nobody can answer here: assign the value in the cell"
    if type(error) is ImportError and type(error.msg) is str and error.msg.startswith("IProgress not found"):
        return "Front ends show no widgets of a session: write `from tqdm import tqdm`"
    if isinstance(error, SyntaxError) and (installs := _INSTALLS.match(str(error.text))):
        return f"In IPython this is a magic, and {sentence(installs[1])}"
    return file_advice.advice(error, policy.files.read, policy.files.write)


def _said(error: BaseException) -> str:
    """Return what an error was created with, if that is text."""
    return error.args[0] if error.args and type(error.args[0]) is str else ""


def _without(error: AttributeError) -> str | None:
    """Return the name of a module whose copy for sessions lacks what the module itself has; None for other errors."""
    copy, name = error.obj, error.name
    module = vars(copy).get("__name__") if type(copy) is types.ModuleType else None
    if type(module) is not str or type(name) is not str or name in vars(copy):  # code may have made up the error
        return None
    real = sys.modules.get(module)
    return module if real is not None and real is not copy and name in vars(real) else None
