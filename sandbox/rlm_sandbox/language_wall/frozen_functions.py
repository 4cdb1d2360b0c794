"""Library functions that refuse every store while they work for a session; `_core` refuses it.

A method of a library stores on whatever it gets as ``self``, and the kernel's own code runs the same functions.
"""

from __future__ import annotations

import gc
import sys
import types
from typing import Final

from rlm_sandbox.language_wall import _core
from rlm_sandbox.language_wall.arrivals import came_since
from rlm_sandbox.language_wall.function_origins import functions_of
from rlm_sandbox.language_wall.registry import is_user_function

DESCRIBED_LATER: Final = {
    "matplotlib.pyplot": frozenset({"new_figure_manager", "draw_if_interactive", "show"}),
    "matplotlib_inline.backend_inline": frozenset({"show"}),
}
"""Functions on which their own module stores, so they stay open: pyplot stores the signatures when the first figure is
drawn, and the notebook backend stores which figures are still to be shown.
"""

_seen: Final[dict[str, object]] = {}
"""The modules whose functions are frozen."""


def freeze_all() -> None:
    """Freeze the existing functions; for the zygote."""
    _seen.update(sys.modules)
    _complete_lazy()
    left_open = _left_open()
    for value in gc.get_objects():
        if type(value) is types.FunctionType and id(value) not in left_open and not is_user_function(value):
            _core.freeze(value)


def _complete_lazy() -> None:
    """Compile those functions of networkx that replace their own code at their first call: frozen, they could not."""
    module = sys.modules.get("networkx.utils.decorators")
    if module is not None:
        argmap = vars(module)["argmap"]
        lazy = [code for code in argmap.__call__.__code__.co_consts if type(code) is types.CodeType]
        for value in gc.get_objects():
            if type(value) is types.FunctionType and any(value.__code__ is code for code in lazy):
                argmap._lazy_compile(value)


def freeze_imported() -> None:
    """Freeze the functions of modules that were imported after ``freeze_all``; called after each import."""
    for module in came_since(_seen) if _seen else ():
        left_open = _left_open()
        for function in functions_of(module):
            if id(function) not in left_open:
                _core.freeze(function)


def _left_open() -> set[int]:
    """Return the ids of the functions that stay open."""
    found = set()
    for module, names in DESCRIBED_LATER.items():
        namespace = vars(sys.modules[module]) if module in sys.modules else {}
        for function in map(namespace.get, names):
            if type(function) is types.FunctionType and function.__globals__ is namespace:
                found.add(id(function))
    return found
