"""What stands for functions and classes of the standard library does for a session's objects what the original does."""

import io
import sys
from typing import Any

import pytest

from rlm_sandbox.language_wall.modules.buffered_files import CopyingRaw


@pytest.fixture
def refused(session: Any) -> Any:
    """Each cell raises an error of this class, and says this."""

    def check(error: type[BaseException], said: str, *cells: str) -> None:
        for cell in cells:
            with pytest.raises(error, match=said):
                session.run(cell)

    return check


def test_protocols_of_ones_own_can_be_checked(same: Any, refused: Any) -> None:
    """A library's protocol would be changed for everybody."""
    same("""
        import typing
        @typing.runtime_checkable
        class Goes(typing.Protocol):
            def go(self): ...
        class Car:
            def go(self): pass
        result = isinstance(Car(), Goes), isinstance(3, Goes)
    """)
    refused(TypeError, "only your own protocol", "import typing\ntyping.runtime_checkable(typing.SupportsInt)")


def test_classes_can_be_looked_through(same: Any, refused: Any) -> None:
    """The order of their bases, and their members; metaclasses show neither."""
    same("""
        import inspect
        class Base:
            def one(self): pass
            value = 1
        class Below(Base): pass
        members = [name for name, _ in inspect.getmembers(Below(), inspect.ismethod)]
        values = [pair for pair in inspect.getmembers(Below()) if not pair[0].startswith("__") and pair[0] != "one"]
        result = [each.__name__ for each in inspect.getmro(Below)], members, values
    """)
    refused(AttributeError, "of a metaclass", "import inspect\ninspect.getmro(type)")


def test_data_classes_can_be_replaced_as_in_python(same: Any) -> None:
    """Fields that are not for ``__init__``, variables of it and of the class."""
    same("""
        import dataclasses, typing
        @dataclasses.dataclass
        class Item:
            a: int
            b: int = dataclasses.field(default=2, init=False)
            c: dataclasses.InitVar[int] = 5
            kind: typing.ClassVar[int] = 9
            def __post_init__(self, c): self.kept = c
        @dataclasses.dataclass
        class Made:
            a: dataclasses.InitVar[int]
        def attempt(*args, **changes):
            try: return dataclasses.replace(*args, **changes)
            except (TypeError, ValueError) as error: return type(error).__name__, str(error)
        item = Item(1)
        result = [attempt(item, a=4), attempt(item, a=4, c=1).kept, attempt(item, b=4), attempt(Made(1)) , attempt(3)]
    """)


def test_what_could_not_be_a_data_class_is_refused(session: Any, refused: Any) -> None:
    """A library's class would be changed, and names of fields become source text."""
    session.run("""
        import collections, dataclasses
        class Meta(type):
            def __getattr__(cls, name): return 1
        class Odd(metaclass=Meta): a: int = 1
        class Other: pass
        Other.__annotations__ = collections.OrderedDict(a=int)
        Two = dataclasses.make_dataclass("Two", [("a", int), "b"])
        result = repr(Two(1, 2))
    """)
    assert session.namespace["result"] == "Two(a=1, b=2)"
    refused(TypeError, "only a class of your own", "dataclasses.dataclass(collections.OrderedDict)")
    refused(TypeError, "whose metaclass defines __getattr__", "dataclasses.dataclass(Odd)")
    refused(TypeError, "must be a dict", "dataclasses.dataclass(Other)")
    refused(TypeError, "must be identifiers", "dataclasses.make_dataclass('N', ['a b'])")


def test_abstract_classes_can_be_made_by_a_call(session: Any, refused: Any) -> None:
    """They are the session's own, and checked like those of a statement."""
    assert session.value("""
        import abc
        Made = abc.ABCMeta("Made", (), {"_x": 1})
        result = Made._x, isinstance(Made, abc.ABCMeta), Made()._x
    """) == (1, True, 1)
    refused(TypeError, "may not define '__reduce__'", "abc.ABCMeta('Made', (), {'__reduce__': 1})")


def test_types_of_the_interpreter_can_be_asked_for_and_not_made(session: Any, refused: Any) -> None:
    """``isinstance`` and annotations work with what stands for them."""
    assert session.value("""
        import types, typing
        def annotated(a: types.CodeType | None, b: "int" = 1): pass
        result = isinstance(1, types.CodeType), repr(types.FrameType), types.CodeType | None is typing.Any
    """) == (False, "<class 'frame'>", True)
    refused(TypeError, "'code' objects cannot be created", "types.CodeType()")
    refused(AttributeError, "'code' is read-only", "types.CodeType.x = 1")


def test_functions_can_be_timed_and_text_can_not(session: Any, refused: Any) -> None:
    """``timeit`` compiles text."""
    assert session.value(
        """
        import timeit
        ran = []
        fixed = timeit.timeit(lambda: ran.append(1), setup=lambda: ran.append(0), number=3, timer=lambda: 1.0)
        result = fixed, ran, len(timeit.repeat(lambda: None, repeat=2, number=1))
    """
    ) == (0.0, [0, 1, 1, 1], 2)
    refused(TypeError, "takes functions", "timeit.timeit('pass', number=1)", "timeit.timeit(len, setup='x = 1')")


def test_a_lock_belongs_to_one_loop(session: Any, refused: Any) -> None:
    """Each cell with ``await`` has a loop of its own."""
    session.run("""
        import asyncio
        lock = asyncio.Lock()
        async def use():
            async with lock: await asyncio.sleep(0)
        await asyncio.gather(use(), use())
    """)
    refused(RuntimeError, "bound to a different event loop", "await asyncio.gather(use(), use())")
    refused(AttributeError, "get_stack", "asyncio.current_task().get_stack()\nawait asyncio.sleep(0)")
    assert session.value("result = asyncio.get_running_loop().time() > 0\nawait asyncio.sleep(0)")


def test_parts_of_sys_are_what_a_session_may_have(session: Any, refused: Any) -> None:
    """A limit of recursion that the process survives; no other names."""
    before = sys.getrecursionlimit()
    try:
        assert session.value("import sys\nsys.setrecursionlimit(10**9)\nresult = sys.getrecursionlimit()") < 10**6
    finally:
        sys.setrecursionlimit(before)
    refused(AttributeError, "private to module 'sys'", "getattr(sys, '_get' + 'frame')")
    refused(AttributeError, "no attribute 'nothing' in this session", "sys.nothing")


def test_help_shows_documentation_and_exit_ends_the_cell(session: Any, refused: Any) -> None:
    """``help`` needs a terminal in plain Python."""
    assert session.run('def told():\n    """What it does."""\nhelp(told, 3 .real)').startswith("What it does.\nint(")
    assert "no documentation" in session.run("def silent(): pass\nhelp(silent)")
    refused(SystemExit, "4", "exit(4)", "quit(4)")


_RAW = """
import io
class Raw(io.RawIOBase):
    def __init__(self, data=b"hello world"): self.data, self.at, self.seen = bytearray(data), 0, []
    def readable(self): return True
    def writable(self): return True
    def seekable(self): return True
    def isatty(self): return True
    def readinto(self, buffer):
        self.seen.append(buffer)
        count = min(len(buffer), len(self.data) - self.at)
        buffer[:count] = self.data[self.at : self.at + count]
        self.at += count
        return count
    def write(self, data):
        self.seen.append(data)
        self.data[self.at : self.at + len(data)] = data
        self.at += len(data)
        return len(data)
    def seek(self, offset, whence=0):
        self.at = offset + (0, self.at, len(self.data))[whence]
        return self.at
    def tell(self): return self.at
    def truncate(self, size=None): del self.data[size:]; return size
class Whole(Raw):
    def readall(self): return b"all"
class Liar(Raw):
    def readinto(self, buffer): return 10**6
class Busy(Raw):
    def readinto(self, buffer): return None
def attempt(work):
    try: return work()
    except Exception as error: return type(error).__name__
"""


def test_a_raw_file_of_ones_own_reads_and_writes_as_in_python(same: Any) -> None:
    """Whatever a buffered file asks of it."""
    same(
        _RAW
        + """
reader, writer, both = io.BufferedReader(Raw()), io.BufferedWriter(raw := Raw()), io.BufferedRandom(Raw())
asked = [reader.read(5), reader.tell(), reader.seek(0), reader.read(), reader.isatty(), reader.closed,
         reader.seekable(), reader.readable(), attempt(reader.fileno), reader.raw.at]
wrote = [writer.write(b"HE"), writer.flush(), bytes(raw.data), writer.writable(), writer.truncate(3), bytes(raw.data)]
mixed = [both.read(2), both.write(b"--"), both.seek(0), both.read(), both.close(), both.closed]
other = [io.BufferedReader(Whole()).read(), attempt(lambda: io.BufferedReader(Liar()).read(4)),
         io.BufferedReader(Busy()).read(4), io.TextIOWrapper(io.BufferedReader(Raw())).read(),
         writer.detach() is raw]
result = asked, wrote, mixed, other
"""
    )


def test_a_raw_file_of_ones_own_answers_for_itself(session: Any) -> None:
    """It, and not the base class of the file between, says whether it is a terminal."""
    assert session.value(_RAW + "result = io.BufferedReader(Raw()).isatty()") is True


def test_a_raw_file_of_ones_own_never_has_the_buffer_of_another(session: Any) -> None:
    """A view of it would show freed memory when the buffered file is gone."""
    kinds = session.value(
        _RAW
        + """
reader, writer = io.BufferedReader(first := Raw()), io.BufferedWriter(second := Raw())
reader.read(3); writer.write(b"x"); writer.flush()
result = [type(seen).__name__ for seen in first.seen + second.seen]
"""
    )
    assert set(kinds) == {"bytearray", "bytes"}


def test_a_raw_file_of_ones_own_has_no_descriptor() -> None:
    """C code would use whatever number it names."""

    class Numbered(io.BytesIO):
        def fileno(self) -> int:
            return 0

    with pytest.raises(io.UnsupportedOperation, match="fileno"):
        CopyingRaw(Numbered()).fileno()
