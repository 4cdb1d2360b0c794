"""What libraries write or keep for a session's objects, and apply to any other: fields, copies, methods."""

import asyncio
import copy
import sys

import pytest

from rlm_sandbox.language_wall.files import FileAccess

_FIELDS = """
    import dataclasses, threading
    seen = []
    class Equal:
        def __eq__(self, other):
            seen.append(other)
            return False
        __lt__ = __eq__
        __hash__ = None
    class Passes:
        def __getattribute__(self, name):
            return type(subject) if name == "__class__" else Equal()
    def numbers():
        yield 1
    thread = threading.Thread(target=len)
    frames = numbers()
"""


@pytest.mark.parametrize(("name", "subject"), [("_target", "thread"), ("gi_frame", "frames"), ("gi_code", "frames")])
@pytest.mark.parametrize("call", ["D.__eq__(subject, Passes())", "D.__lt__(subject, Passes())", "D.__repr__(subject)"])
def test_methods_of_a_dataclass_read_fields_by_the_rules(session, name, subject, call):
    """They can be called with any object, whose attributes of these names are then compared with the session's own."""
    session.run(_FIELDS)
    session.run(f"""
        @dataclasses.dataclass(order=True)
        class D:
            {name}: object
        subject, shown = {subject}, None
        try:
            shown = {call}
        except (AttributeError, TypeError):
            pass
    """)
    assert not [value for value in session.namespace["seen"] if type(value).__name__ != "Equal"]
    assert type(session.namespace["shown"]) is not str


@pytest.mark.parametrize("frozen", [False, True])
def test_methods_of_a_dataclass_store_fields_by_the_rules(session, frozen):
    """`__init__` and, of a frozen one, what it calls in the place of an assignment."""
    session.run(_FIELDS)
    with pytest.raises(AttributeError, match="private"):
        session.run(f"""
            @dataclasses.dataclass(frozen={frozen})
            class D:
                _target: object
            D.__init__(thread, len)
        """)
    assert session.namespace["thread"]._target is len


@pytest.mark.skipif(sys.version_info < (3, 13), reason="classes have `__replace__` since CPython 3.13")
def test_copy_replace_reads_the_fields_that_a_class_has(session):
    """Whatever the object answers when it is asked for them."""
    session.run(_FIELDS)
    session.run("""
        import copy
        @dataclasses.dataclass
        class D:
            x: object
        try:
            D.__replace__(thread)
        except TypeError:
            missing = True
        replaced = copy.replace(D(1), x=2)
    """)
    assert session.namespace["missing"]
    assert session.namespace["replaced"].x == 2


def test_dataclasses_work_as_ever(same):
    """Of each kind, with and without the wall."""
    same("""
        import copy, dataclasses, inspect, typing
        @dataclasses.dataclass(order=True, frozen=True)
        class Point:
            x: int
            y: list = dataclasses.field(default_factory=list, compare=False)
            _z: int = 3
            start: dataclasses.InitVar[int] = 2
            count: typing.ClassVar[int] = 9
            def __post_init__(self, start): object.__setattr__(self, "_z", self._z + start)
        @dataclasses.dataclass(slots=True, kw_only=True)
        class Slots:
            type: int
            format: str = ""
            query: int = 0
        @dataclasses.dataclass
        class Error(Exception):
            self: int
            _code: int = 0
        @dataclasses.dataclass
        class Tree:
            parent: object = None
        Made = dataclasses.make_dataclass("Made", ["a", ("b", int, 3)], namespace={"twice": lambda self: self.a * 2})
        tree, slots, errors = Tree(), Slots(type=1), []
        tree.parent = tree
        slots.type += 1
        for call in (
            lambda: setattr(Point(1), "x", 2), lambda: Point(), lambda: dataclasses.replace(Point(1), start=0),
            lambda: dataclasses.replace(Made(1), c=0), lambda: dataclasses.replace(Made, a=1),
        ):
            try: errors.append(repr(call()))
            except (AttributeError, TypeError, ValueError) as error: errors.append(type(error).__name__)
        first, second = Point(1), Point(2, [1])
        result = (
            first, second, first < second, first == Point(1), hash(first), dataclasses.replace(second, x=5, start=1),
            dataclasses.asdict(second), dataclasses.astuple(slots), slots, str(inspect.signature(Point)),
            Point.__doc__, Point.__init__.__qualname__, Made(1), Made(1).twice(), repr(Error(1, 2)), tree,
            copy.deepcopy(slots), errors,
        )
    """)


_COPIED = """
    import copy, logging
    subject = logging.Formatter()
    class Own:
        def __deepcopy__(self, memo):
            seen.append(memo)
            return self
    seen = [{}]
    copy.deepcopy([subject, Own()], seen[0])
"""


def test_a_deep_copy_shows_no_namespace(session):
    """Neither the memo that it is given, nor the one that it gives, holds what it keeps alive."""
    session.run(_COPIED)
    live = session.namespace["subject"].__dict__
    for memo in session.namespace["seen"]:
        assert memo
        held = [part for value in memo.values() for part in (value if type(value) is list else [value])]
        assert not [part for part in held if part is live]


def test_a_deep_copy_keeps_alive_what_it_has_read(session):
    """An object of the same address would be taken for the one that was copied."""
    session.run("""
        import copy
        class Number:
            def __init__(self, value): self.value = value
        class Fresh:
            def __deepcopy__(self, memo): return [copy.deepcopy(Number(n), memo) for n in range(100)]
        result = [one.value for one in copy.deepcopy(Fresh())]
    """)
    assert session.namespace["result"] == list(range(100))
    assert copy.deepcopy([[1]]) == [[1]]


def test_a_weak_method_gives_no_object_of_a_library(session):
    """As a reference it would give the object that a method of the wall belongs to."""
    session.run("""
        import weakref
        class Own:
            def method(self): return 5
        own, given = Own(), None
        reference = weakref.WeakMethod(own.method)
        result = reference()(), reference == weakref.WeakMethod(own.method)
        try:
            given = weakref.ref.__call__(weakref.WeakMethod(open))
        except TypeError:
            pass
    """)
    assert session.namespace["result"] == (5, True)
    assert not isinstance(session.namespace["given"], FileAccess)


def test_a_loop_is_not_compared_with_an_object_of_the_session(session):
    """A key of the same hash is asked whether it equals the loop."""
    session.run("""
        import asyncio
        seen, refused = [], []
        class Key:
            def __init__(self, number): self.number = number
            def __hash__(self): return self.number
            def __eq__(self, other):
                seen.append(other)
                return False
        async def ask():
            for function in (asyncio.current_task, asyncio.all_tasks):
                try: function(Key(number()))
                except TypeError: refused.append(function)
            return asyncio.current_task(asyncio.get_running_loop()) in asyncio.all_tasks()
    """)
    session.namespace["number"] = lambda: hash(asyncio.get_running_loop())
    session.run("result = await ask()")
    assert session.namespace["result"] is True
    assert len(session.namespace["refused"]) == 2
    assert session.namespace["seen"] == []
