"""Which functions are taken for a module's own, whatever objects its classes hold."""

import functools
import types
from typing import Any

from rlm_sandbox.language_wall.function_origins import functions_of


class Lazy:
    """As six has them: any attribute of it imports what it stands for, which may be missing."""

    def __getattr__(self, name: str) -> Any:
        raise ModuleNotFoundError(name)

    __class__ = __dict__ = property(__getattr__)  # type: ignore[assignment, arg-type]


def test_every_kind_of_method_is_found_and_no_other_object_is_asked() -> None:
    """The wall freezes the functions of each module that is imported: one lazy attribute ended every import."""
    module = types.ModuleType("sample")
    source = """
class Holder:
    def plain(self): ...
    @staticmethod
    def static(): ...
    @classmethod
    def of_class(cls): ...
    @property
    def read(self): ...
    @functools.lru_cache
    def cached(self): ...
    lazy = Lazy()
def outside(): ...
"""
    vars(module).update(functools=functools, Lazy=Lazy)
    exec(source, vars(module))
    names = {function.__name__ for function in functions_of(module)}
    assert names == {"plain", "static", "of_class", "read", "cached", "outside"}
