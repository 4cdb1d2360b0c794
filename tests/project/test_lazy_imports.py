"""The packages that import their public names on first use: what type checkers read and what runs are two lists."""

import ast
import importlib
import inspect

import pytest


def _for_type_checkers(package: str) -> dict[str, str]:
    """Where each name comes from that the package's ``if TYPE_CHECKING`` imports from the package itself."""
    tree = ast.parse(inspect.getsource(importlib.import_module(package)))
    blocks = [node.body for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [node for block in blocks for node in block if isinstance(node, ast.ImportFrom)]
    own = [(alias.name, str(node.module)) for node in imports for alias in node.names]
    return {name: home for name, home in own if home.startswith(package)}


@pytest.mark.parametrize("package", ["rlm_sandbox.policy", "rlm_client"])
def test_the_names_of_a_package_are_the_same_for_type_checkers_and_at_run_time(package: str) -> None:
    """A name that one list lacks fails only where somebody uses it, or is never checked."""
    module = importlib.import_module(package)
    told = _for_type_checkers(package)
    assert told
    assert told == module._HOMES
    assert sorted(module.__all__) == sorted(told)
    for name, home in told.items():
        assert getattr(module, name) is getattr(importlib.import_module(home), name)
