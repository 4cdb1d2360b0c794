"""Methods of libraries that take the namespace of what they are given: none of it reaches code of the session."""

import pytest

from rlm_sandbox.policy import load_policy


@pytest.fixture
def data(make_session):
    """A session with the data libraries."""
    return make_session(imports=load_policy("data").language.imports)


_NAMESPACES = """
    import collections, email.policy, logging, pprint, threading, types
    seen = []
    class Policy(email.policy.EmailPolicy):
        def clone(self, **settings):
            seen.append(settings)
    class Text(str):
        def __mod__(self, values):
            seen.append(values)
            return "x"
    class Thread(threading.Thread):
        exc_info = exc_text = stack_info = None
        def getMessage(self):
            return "m"
    class Printer(pprint.PrettyPrinter):
        def format(self, value, *_):
            seen.append(value)
            return "x" * 200, True, False
    class Queue(collections.deque):
        pass
    class Hostile:
        def __getattribute__(self, name):
            class Taker:
                def update(self, values):
                    seen.append(values)
            return Taker() if name == "__dict__" else object.__getattribute__(self, name)
    class Copied(threading.Thread):
        def __new__(cls):
            return Hostile() if made else object.__new__(cls)
    made = []
"""


@pytest.mark.parametrize(
    "step",
    [
        "Policy() + object",
        "Policy() + type(threading.current_thread())",
        "Policy() + threading.main_thread()",
        "Policy() + logging",
        "logging.Formatter(Text('%(message)s')).format(Thread())",
        "Thread.__repr__ = types.SimpleNamespace.__repr__; Printer(width=10).pprint(Thread())",
        "made.append(Copied()); collections.UserDict.__copy__(made[0])",
        "made.append(Copied()); collections.UserList.__copy__(made[0])",
    ],
)
def test_no_namespace_of_another_object_is_handed_on(session, step):
    """Not to a method or an operator of the session: the namespace of `object` holds what reads any attribute."""
    session.run(_NAMESPACES)
    session.run(f"""
try:
    {step.replace("; ", chr(10) + "    ")}
except (TypeError, KeyError):
    pass
""")
    seen = session.namespace["seen"]
    assert not [name for values in seen if isinstance(values, dict) for name in values if name.startswith("_")]
    assert not [value for value in seen if type(value) in (dict, type(None)) and "_target" in str(value)]


def test_a_clone_changes_no_other_object(session):
    """What a policy holds is stored in a new one of its class."""
    with pytest.raises(TypeError, match="same class"):
        session.run("""
            import email.policy, threading
            thread = threading.Thread()
            class Policy(email.policy.EmailPolicy):
                def __new__(cls):
                    return thread if armed else object.__new__(cls)
            armed = False
            policy = Policy()
            armed = True
            policy.clone()
        """)


def test_policies_records_and_copies_work_as_ever(same):
    """With objects that are what their methods expect."""
    same("""
        import collections, copy, email.policy, io, logging, pprint, types
        both = email.policy.SMTP + email.policy.strict
        class Own(email.policy.EmailPolicy):
            pass
        log = logging.getLogger("own"); out = io.StringIO(); handler = logging.StreamHandler(out)
        log.propagate = False
        for style, text in (("%", "%(name)s %(message)s %(_own)s"), ("{", "{message} {_own}"), ("$", "$message $_own")):
            handler.setFormatter(logging.Formatter(text, style=style))
            log.addHandler(handler)
            log.warning("a %s", 1, extra={"_own": 2})
        space = types.SimpleNamespace(a="x" * 50, b="y" * 50)
        first, second = collections.UserDict(a=1), collections.UserList([1])
        copied = copy.copy(first), copy.copy(second)
        copied[0]["b"] = 2
        copied[1].append(2)
        result = (
            both.linesep, both.raise_on_defect, Own().clone(max_line_length=9).max_line_length, (Own() + both).linesep,
            out.getvalue(), pprint.pformat(space), first, second, copied,
        )
    """)


def test_yaml_takes_no_object_of_a_library_apart(data):
    """Neither is its state given to a dumper of the session's, nor set in a new one by its loader."""
    data.run("""
        import sys, threading, yaml
        seen = []
        class Dumper(yaml.Dumper):
            def represent_mapping(self, tag, mapping, flow_style=None):
                seen.append(mapping)
                return super().represent_mapping(tag, {})
        class Own:
            def __init__(self):
                self.a = 1
        for value in (threading.Event(), sys.stdout, yaml.Dumper, Own()):
            try:
                yaml.dump(value, Dumper=Dumper)
            except yaml.YAMLError:
                pass
            try:
                Dumper(sys.stdout).represent_yaml_object("x", value, None)
            except TypeError:
                pass
        event = None
        try:
            loader = yaml.SafeLoader("{_flag: 1}")
            event = next(loader.construct_yaml_object(loader.get_single_node(), threading.Event))
        except TypeError:
            pass
    """)
    assert data.namespace["seen"] == [{"a": 1}, {"a": 1}]
    assert data.namespace["event"] is None


def test_the_fields_of_an_object_are_those_of_its_class(session):
    """A metaclass may answer with those of another class: their names are read from the object."""
    session.run("""
        import asyncio, dataclasses
        @dataclasses.dataclass
        class Fields:
            _runner: int = 0
        class Meta(type):
            def __getattr__(cls, name):
                if name == "__dataclass_fields__":
                    return Fields.__dataclass_fields__
                raise AttributeError(name)
        class Runner(asyncio.Runner, metaclass=Meta):
            __getattr__ = Meta.__getattr__
        seen = []
        for read in (dataclasses.astuple, dataclasses.asdict, dataclasses.fields):
            try:
                seen.append(read(Runner()))
            except TypeError:
                pass
    """)
    assert session.namespace["seen"] == []


def test_dataclasses_are_read_as_ever(same):
    """Of own fields, also private ones; a class that is none has no fields."""
    same("""
        import dataclasses, pprint
        from typing import ClassVar
        @dataclasses.dataclass
        class Point:
            x: int
            _y: int = 2
            kind: ClassVar[str] = "point"
        @dataclasses.dataclass
        class Line(Point):
            end: Point = dataclasses.field(default_factory=lambda: Point(3), repr=False)
        line = Line(1)
        result = [dataclasses.asdict(line), dataclasses.astuple(line), pprint.pformat(Point(10 ** 90))]
        result.append([field.name for field in dataclasses.fields(Line)])
        for value in (int, 3):
            try:
                dataclasses.fields(value)
            except TypeError as error:
                result.append(str(error))
    """)


def test_a_content_manager_asks_for_no_hidden_class(session):
    """The class of a class is the raw `type`; texts are set as ever."""
    assert session.value("""
        from email.contentmanager import ContentManager, raw_data_manager
        from email.message import EmailMessage
        seen = []
        class Handlers(dict):
            def __contains__(self, key):
                seen.append(key)
                return False
        manager = ContentManager()
        manager.set_handlers = Handlers()
        try:
            manager.set_content(EmailMessage(), int)
        except KeyError:
            pass
        message = EmailMessage()
        message.set_content("text", content_manager=raw_data_manager)
        result = seen, message.get_content()
    """) == ([], "text\n")
