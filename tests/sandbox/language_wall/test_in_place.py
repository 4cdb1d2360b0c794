"""Functions of libraries that are replaced in the libraries themselves."""

from types import ModuleType
from typing import Any

from rlm_sandbox.language_wall.modules.in_place import replace_in


def test_a_function_of_a_library_is_replaced_once_however_often_that_is_asked_for() -> None:
    """Every import asks for it again, and what has replaced the function must not be replaced in turn."""
    library: Any = ModuleType("library")
    library.measure = len
    for _ in range(2):
        replace_in(library, "measure", lambda real: lambda *given: [real(*given)])
    assert library.measure("abc") == [3]


def test_a_function_that_a_library_has_put_there_since_is_replaced_too() -> None:
    """A module that is loaded again brings its own function back."""
    library: Any = ModuleType("library")
    for function in (len, sum):
        library.measure = function
        replace_in(library, "measure", lambda real: lambda *given: [real(*given)])
    assert library.measure((1, 2)) == [3]
