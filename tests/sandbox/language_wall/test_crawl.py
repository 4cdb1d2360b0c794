"""A walk over everything that is natively reachable from a session: no raw capability anywhere.

Natively reachable means: by attribute names that compile without a guard, from the builtins and from every
module of the policy. It finds what no list of known attacks has: a class attribute that holds a module, a
decorator that publishes what it wraps.
"""

import types

import pytest
from escape_loot import capability

from rlm_sandbox.language_wall.modules.standard import SafeABCMeta
from rlm_sandbox.language_wall.modules.tables import KEEP
from rlm_sandbox.language_wall.names import AttributeAccess, access
from rlm_sandbox.language_wall.registry import is_sanitised

LIMIT = 60_000
# Functions of the system that the session has: the audit hook decides on the paths they are given.
ON_PURPOSE = frozenset(f"os.{name}" for name in KEEP["os"])
# Values whose attributes are their type's: nothing new behind them.
_ATOMS = (int, float, complex, str, bytes, bool, type(None), type(...), types.MethodWrapperType)
# A function, a method or a descriptor leads on only by guarded names.
_ENDS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
)


def natively_readable(value):
    """The attributes that compiled code reads without a guard."""
    names = set(dir(type(value))) | set(dir(value) if not isinstance(value, type) else object.__dir__(value))
    names |= set(dir(value)) if isinstance(value, type | types.ModuleType) else set()
    for name in sorted(names):
        if access(name) is AttributeAccess.NATIVE and not name.startswith("__"):
            try:
                yield name, getattr(value, name)
            except Exception:
                continue


def children(value):
    """What is one step away: attributes, items and members."""
    yield from natively_readable(value)
    if isinstance(value, dict | types.MappingProxyType):
        for index, (key, item) in enumerate(list(value.items())[:50]):
            yield f"key {index}", key
            yield f"[{key!r}]", item
    elif isinstance(value, list | tuple | set | frozenset):
        for index, item in enumerate(list(value)[:50]):
            yield f"[{index}]", item


@pytest.mark.filterwarnings("ignore")
def test_no_capability_is_natively_reachable(session):
    """Breadth first from the builtins and every module copy, by name, item and attribute."""
    roots = [("builtins", dict(session.wall.builtins))]
    for name in session.wall.policy.language.imports:
        session.run(f"import {name}")
        roots.append((name, session.wall.builtins["__import__"](name, None, None, None, 0)))
    raw = {"__import__", "__build_class__"}
    queue = [(path, value) for path, value in roots]
    queue[0] = ("builtins", {key: value for key, value in queue[0][1].items() if key not in raw})
    seen = set()
    found = []
    while queue and len(seen) < LIMIT:
        path, value = queue.pop(0)
        if isinstance(value, _ATOMS) or id(value) in seen:
            continue
        seen.add(id(value))
        held = "" if value is SafeABCMeta or path in ON_PURPOSE else capability(value)
        if held:
            found.append(f"{path}: {held}")
            continue
        if isinstance(value, _ENDS) or (isinstance(value, types.ModuleType) and not is_sanitised(value)):
            continue
        queue += [(f"{path}.{name}", child) for name, child in children(value)]
    assert not found
    assert len(seen) > 2000
