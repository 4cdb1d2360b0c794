"""Classes that code makes by a call, by a metaclass, or has a library make: no way leads round the checks."""

import asyncio
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlm_sandbox.language_wall.guards.attributes import AttributeRefused, store_public, wash
from rlm_sandbox.language_wall.guards.classes import SafeType, build_class, library_class
from rlm_sandbox.language_wall.modules.copies import ModuleSet
from rlm_sandbox.language_wall.modules.warning_filters import WarningsState


@pytest.fixture
def refused(session: Any) -> Callable[..., None]:
    """Each cell raises an error of this class, and says this."""

    def check(error: type[BaseException], said: str, *cells: str) -> None:
        for cell in cells:
            with pytest.raises(error, match=said):
                session.run(cell)

    return check


def test_type_makes_and_tells_classes_as_in_python(same: Any) -> None:
    """By a call with three arguments, by a metaclass, or by none."""
    same("""
        class Meta(type):
            def __new__(mcls, name, bases, namespace): return type.__new__(mcls, name, bases, namespace)
        class Made(metaclass=Meta): pass
        class Plain(metaclass=type): pass
        result = [type("N", (), {"_x": 5})._x, type(Made) is Meta, type(Plain) is type, isinstance(Plain, type),
                  isinstance(3, type), isinstance(Made, Meta), isinstance(3, Meta), issubclass(Meta, type)]
    """)


def test_a_class_is_made_by_ones_own_metaclass_only(refused: Callable[..., None]) -> None:
    """A library's would not be checked."""
    own = "in a metaclass of your own"
    refused(TypeError, own, "import abc\ntype.__new__(abc.ABCMeta, 'N', (), {})")
    refused(TypeError, own, "import enum\ntype.__new__(enum.EnumMeta, 'N', (), {})")
    refused(TypeError, "1 or 3 arguments", "type(1, 2)")
    refused(TypeError, "must be str", "type('N', (), {1: 2})")
    refused(TypeError, "missing", "class Meta(type): pass\nMeta(1)")


def test_a_class_statement_runs_a_body_of_the_session() -> None:
    """Any other function would run with the builtins of the kernel."""
    with pytest.raises(TypeError, match="only the body of a class statement"):
        build_class(len, "N")
    with pytest.raises(TypeError, match="only the body of a class statement"):
        build_class(lambda: None, "N")


def test_a_library_makes_no_class_that_a_cell_could_not_write() -> None:
    """A session leads a library to a metaclass with names and bases of its choice."""
    given = property(repr)
    for bases, namespace, said in [
        ((types.FunctionType,), {}, "may not be subclassed"),
        ((asyncio.Future,), {}, "may not be subclassed"),
        ((object,), {1: 2}, "must be str"),
        ((object,), {"__del__": given}, "with a '__del__'"),
        ((object,), {"__reduce__": given}, "with a '__reduce__'"),
        ((object,), {"__reduce__": classmethod(repr)}, "with a '__reduce__'"),
        ((object,), {"__reduce__": staticmethod(repr)}, "with a '__reduce__'"),
        ((type,), {"__getattribute__": repr}, "with a"),
    ]:
        with pytest.raises(TypeError, match=said):
            library_class(type, bases, namespace)
    assert library_class(type, (object,), {"__call__": repr})["__call__"] is repr


def test_a_librarys_own_functions_define_what_they_like() -> None:
    """What running code of the library defines was not handed to it."""

    def __reduce__(self: object) -> str:  # noqa: N807
        return ""

    for value in (__reduce__, property(__reduce__), classmethod(__reduce__), staticmethod(__reduce__)):
        assert library_class(type, (object,), {"__reduce__": value})["__reduce__"] is value


def test_patterns_read_only_names_that_a_cell_may_read(same: Any, session: Any) -> None:
    """``__match_args__`` names attributes, a metaclass can answer for it, and it may hold anything."""
    same("""
        import collections
        class Pair(collections.OrderedDict):
            __match_args__ = ("one",)
            one = 5
        match Pair():
            case Pair(value): result = value
    """)
    assert session.value("""
        class Named(collections.OrderedDict): __match_args__ = ("__class__",)
        class Numbered(collections.OrderedDict): __match_args__ = (3,)
        class Meta(type):
            def __getattr__(cls, name): return ("__class__",)
        class Answered(collections.OrderedDict, metaclass=Meta): pass
        result = [each.__match_args__ for each in (Named, Numbered, Answered)]
    """) == [(), (), ()]


def test_a_field_may_not_take_a_private_name_of_a_library(refused: Callable[..., None]) -> None:
    """The methods of a data class read its fields; the library's class holds something there."""
    refused(
        TypeError,
        "may not have a field named '_clamp'",
        """
        import dataclasses, decimal
        @dataclasses.dataclass
        class Mine(decimal.Context):
            _clamp: int = 1
        """,
    )


def test_objects_that_no_session_may_hold_do_not_pass() -> None:
    """Whatever gives them: an attribute, a return value, an argument."""
    assert wash(type) is SafeType
    for value in (asyncio.Handle, type.__subclasses__, types.FrameType.f_globals, sys._getframe()):
        with pytest.raises(AttributeRefused):
            wash(value)
    with pytest.raises(AttributeRefused, match="a library module, which may not be modified"):
        store_public(sys)


def test_names_that_libraries_use_are_updated_on_ones_own_objects_only(session: Any) -> None:
    """An update reads and stores at once."""
    assert (
        session.value("""
        import fractions
        class Own: obj = 1
        own = Own()
        own.obj += 1
        result = own.obj
    """)
        == 2
    )
    with pytest.raises(AttributeRefused, match="only on an object of a class of your own"):
        session.run("number = fractions.Fraction(1)\nnumber.obj += 1")


def test_warnings_are_filtered_by_plain_categories(session: Any, refused: Callable[..., None]) -> None:
    """A filter is asked in the midst of the wall's own work, and would run what the session put there."""
    assert session.value("""
        import warnings
        class Mine(UserWarning): pass
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            warnings.simplefilter("ignore", Mine)
            warnings.warn("told"); warnings.warn("not told", Mine)
        result = [str(each.message) for each in seen]
    """) == ["told"]
    asks = "class Meta(type): pass\nclass Asks(Warning, metaclass=Meta): pass\nwarnings.simplefilter('ignore', Asks)"
    refused(TypeError, "that has no metaclass", asks)
    state = WarningsState()
    before = state.filters
    for wrong in ([1], [("ignore", object(), Warning, None, 0)], (), [("ignore", None, Warning, None)]):
        with pytest.raises(TypeError, match="texts and plain categories only"):
            state.filters = wrong  # type: ignore[assignment]
    with pytest.raises(TypeError, match="may not be replaced"):
        state.showwarning = print
    state.filters = before


def test_signatures_are_not_evaluated_from_text(session: Any, refused: Callable[..., None]) -> None:
    """The real builtins would evaluate it."""
    assert session.value("import inspect\ndef f(a: 'int' = 1): pass\nresult = str(inspect.signature(f))") == (
        "(a: 'int' = 1)"
    )
    refused(TypeError, "leave eval_str out", "inspect.Signature.from_callable(f, eval_str=True)")


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A library that is admitted: it holds the raw ``type`` under a name, and one of its modules lacks another."""
    folder = tmp_path / "of_a_test"
    folder.mkdir()
    (folder / "__init__.py").write_text("kind = type\nvalue = 5\n")
    (folder / "broken.py").write_text("import no_such_module_of_a_test\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "of_a_test"  # type: ignore[misc]
    for name in [name for name in sys.modules if name.split(".")[0] == "of_a_test"]:
        del sys.modules[name]


def test_a_copy_of_a_module_gives_the_stand_in_for_type(make_session: Any, library: str) -> None:
    """And an error of an import inside it is told as it is: the library is installed."""
    session = make_session(imports=(library,))
    assert session.value(f"import {library}\nresult = {library}.value, {library}.kind is type, {library}.kind(3)") == (
        5,
        True,
        int,
    )
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'no_such_module_of_a_test'$"):
        session.run(f"import {library}.broken")


def test_a_planted_module_is_all_that_its_package_gives() -> None:
    """The kernel gives displays so, whatever the policy imports."""
    copies = ModuleSet(())
    copies.plant("package_of_a_test.shown", {"value": 5})
    assert copies.admits("package_of_a_test.shown")
    assert not copies.admits("package_of_a_test")
    assert copies.leads_to("package_of_a_test")
    assert copies.copy_of("package_of_a_test").__dict__["shown"].value == 5
    assert ("package_of_a_test.shown", "value", 5) in set(_plain(copies))


def _plain(copies: ModuleSet) -> list[tuple[str, str, Any]]:
    return [(module, name, value) for module, name, value in copies.names() if type(value) is int]


def test_variables_can_be_asked_for_where_the_policy_lets_them(make_session: Any) -> None:
    """``globals()`` shows what the cells named, and none of the wall's own names."""
    session = make_session(blocked_names=())
    assert session.value("""
        mine = 1
        shown = globals()
        shown["fresh"] = 2
        there = fresh, sorted(set(shown) & {"mine", "fresh"})
        del shown["fresh"]
        same = locals()["mine"], "fresh" in shown, shown.copy()["mine"], "mine" in repr(shown)
        def inside(x): return locals()
        code = eval("mine + 1", globals()), eval("mine + x", globals(), {"x": 3}), eval("y", {"y": 2})
        result = there, same, inside(3), code
    """) == ((2, ["fresh", "mine"]), (1, False, 1, True), {"x": 3}, (2, 4, 2))
    for wrong in ("compile('1', '<s>', 'bad')", "compile('1', '<s>', 'eval', 1 << 20)"):
        with pytest.raises(ValueError, match="takes the modes"):
            session.run(wrong)
