"""What a library, or we, read by the session's wish: nothing that the session could not read reaches its code."""

import pytest

from rlm_sandbox.policy import load_policy

_QUEUE = """
    import asyncio
    seen = []
    class Queue(asyncio.Queue):
        help = "x"
        option_strings, dest, required = [], "d", False
        nargs = metavar = default = type = choices = None
        def __setstate__(self, state):
            seen.extend(state)
    queue = Queue(1)
    await queue.put(1)
    waiting = asyncio.ensure_future(queue.put(2))
    await asyncio.sleep(0)
    await queue.get()
    await waiting
"""
"""A queue that keeps its event loop in a private attribute."""


@pytest.fixture
def data(make_session):
    """A session with the data libraries."""
    return make_session(imports=load_policy("data").language.imports)


def test_help_of_arguments_formats_public_values(session):
    """`argparse` gives the variables of an action to a text of the session, which may be an object of its own."""
    session.run(_QUEUE)
    assert session.value("""
        import argparse
        class Text(str):
            def __mod__(self, values):
                seen.extend(values)
                return "x"
        class Formatter(argparse.HelpFormatter):
            def _get_help_string(self, action):
                return Text()
        formatter = Formatter("p")
        formatter.add_argument(queue)
        formatter.format_help()
        result = seen
    """) == ["prog"]


def test_arguments_of_subcommands_are_public_values(session):
    """`argparse` stores what its parser of a subcommand returns in the namespace that it is given."""
    session.run(_QUEUE)
    assert (
        session.value("""
        import argparse
        class Parser(argparse.ArgumentParser):
            def parse_known_args(self, args=None, namespace=None):
                return queue, []
        class Own:
            pass
        parser = argparse.ArgumentParser()
        parser.add_subparsers(parser_class=Parser).add_parser("x")
        result = list(vars(parser.parse_args(["x"], namespace=Own())))
    """)
        == []
    )


def test_locks_and_queues_keep_no_event_loop(session):
    """Much code reads and compares all that two objects keep, and setting it asks the class."""
    session.run(_QUEUE)
    session.run("import types")
    assert type(vars(session.namespace["queue"])["_loop"]) is int
    with pytest.raises(TypeError, match="SimpleNamespace"):
        session.run("class Both(types.SimpleNamespace, asyncio.Queue): pass")
    with pytest.raises(TypeError, match="TaskGroup"):
        session.run("class Group(asyncio.TaskGroup): pass")


def test_locks_and_queues_are_bound_to_one_loop(same):
    """As ever: the first that they wait in."""
    same("""
        import asyncio, threading
        lock, log = asyncio.Lock(), []
        async def hold():
            async with lock:
                await asyncio.sleep(0)
        async def twice():
            await asyncio.gather(hold(), hold())
        def run():
            try:
                asyncio.run(twice())
                log.append("ran")
            except RuntimeError as error:
                log.append("different event loop" in str(error))
        for _ in range(2):
            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
        result = log
    """)


def test_no_code_of_the_session_is_given_the_context_of_the_kernel(session):
    """A future gives it to its loop, and a task to the future that it waits for."""
    for base in ("Future", "Task"):
        with pytest.raises(TypeError, match=base):
            session.run(f"import asyncio\nclass Own(asyncio.{base}): pass")
    session.run("""
        given = []
        class Loop:
            def call_soon(self, *args, **options):
                given.append(options)
            def get_debug(self):
                return False
        class Awaited:
            _asyncio_future_blocking = True
            loop = Loop()
            def get_loop(self):
                return self.loop
            def add_done_callback(self, function, **options):
                given.append(options)
        async def nothing():
            pass
        made = nothing()
        for make in (lambda: asyncio.Future(loop=Loop()), lambda: asyncio.Task(made, loop=Loop())):
            try:
                future = make()
                future.add_done_callback(print)
                future.set_result(1)
            except TypeError:
                pass
        made.close()
        try:
            asyncio.gather(Awaited(), Awaited())
        except TypeError:
            pass
        result = [options for options in given if options]
    """)
    assert session.namespace["result"] == []


def test_arguments_are_parsed_as_ever(same):
    """Into the namespace of `argparse`, one derived from it, and one of a class of the session."""
    same("""
        import argparse
        class Derived(argparse.Namespace):
            pass
        class Own:
            pass
        def parser():
            made = argparse.ArgumentParser(prog="p")
            made.add_argument("-n", type=int, default=3, help="a number (%(default)s)")
            inner = made.add_subparsers(dest="command").add_parser("run", help="runs")
            inner.add_argument("file", nargs="*")
            inner.add_argument("--flag", action="store_true")
            return made
        result = [parser().format_help()]
        for space in (None, argparse.Namespace(), Derived(), Own()):
            known, rest = parser().parse_known_args(["-n", "4", "run", "a", "b", "--flag", "--more"], namespace=space)
            result.append((sorted(vars(known).items()), rest))
    """)


def test_the_state_of_a_copy_is_what_its_class_may_read(session):
    """A runner keeps another one in a slot, a queue its event loop."""
    assert session.value("""
        import asyncio, copy
        seen = []
        class Runner(asyncio.Runner):
            def __setstate__(self, state):
                seen.append(state)
        class Stored(asyncio.Runner):
            def __setattr__(self, name, value):
                seen.append(name)
        for runner in (Runner(), Stored()):
            copy.copy(runner)
            runner.close()
        result = seen
    """) == [(None, {})]


@pytest.mark.parametrize("name", ["mark", "update_entries", "sys", "self", "_find_impl", "_convert"])
def test_definitions_compiled_again_lend_no_variables(data, name):
    """A function that looks for the variables of its caller takes those of code that the session wrote."""
    data.run("""
        import contextlib, functools, operator, pandas as pd
        frame = pd.DataFrame({"a": [1]})
        found = []
        @functools.singledispatch
        def general(x): pass
        def special(x): pass
    """)
    data.run(f"""
        special.__annotations__ = {{"x": "{{}}[{name}]"}}
        try:
            general.register(special)
        except KeyError as error:
            found.append(error.args)
        except (NameError, TypeError):
            pass
        for ask in (operator.methodcaller("eval", "@{name}"), functools.lru_cache(lambda _: frame.eval("@{name}"))):
            try:
                found.append(ask(frame))
            except (NameError, TypeError):
                pass
        try:
            with contextlib.ExitStack() as stack:
                stack.callback(lambda: found.append(frame.eval("@{name}")))
                stack.callback(frame.eval, "@{name}")
        except NameError:
            pass
        else:
            found.append("evaluated")
    """)
    assert data.namespace["found"] == []


def test_text_that_a_library_evaluates_sees_none_of_its_variables(make_session):
    """`eval` and its like, called by a library, find no code of the session above them."""
    session = make_session(blocked_names=())
    assert session.value("""
        from concurrent.futures import ThreadPoolExecutor
        import contextlib
        with ThreadPoolExecutor(1) as pool:
            names = pool.submit(globals).result(), pool.submit(locals).result()
            failed = [type(pool.submit(run, "threading").exception()) for run in (eval, exec)]
        with contextlib.ExitStack() as stack:
            stack.callback(exec, "changed = 1")
        result = [*map(dict, names), failed, "changed" in globals()]
    """) == [{}, {}, [NameError, NameError], True]


def test_a_function_of_tables_is_named_by_plain_text_only(data):
    """An object says twice what it is: to us that it is no list of names, to pandas that it is one."""
    data.run("""
        import pandas as pd
        frame = pd.DataFrame({"a": [1, 2]})
        found = []
        class Names:
            asked = 0
            def __init__(self, honest, lie):
                self.honest, self.lie = honest, lie
            def __getattribute__(self, name):
                own = object.__getattribute__
                if name in ("__class__", "keys", "__iter__"):
                    self.asked = own(self, "asked") + 1
                    if self.asked > own(self, "honest"):
                        return own(self, name)
                    if name == "__class__":
                        return own(self, "lie")
                    raise AttributeError(name)
                return own(self, name)
            def __call__(self, column):
                return 7
            def keys(self): return ["a"]
            def items(self): return [("a", "__dict__")]
            def values(self): return ["__dict__"]
            def __iter__(self): return iter(["a"])
            def __len__(self): return 1
            def __getitem__(self, key): return "__dict__"
            def __contains__(self, key): return key == "a"
        for honest in range(8):
            for lie in (type, int):
                for method in (frame.agg, frame.a.agg, frame.transform, frame.apply):
                    try:
                        found.append(str(method(Names(honest, lie))))
                    except Exception:
                        pass
    """)
    assert not [text for text in data.namespace["found"] if "_mgr" in text]


def test_an_object_that_can_be_called_aggregates(data):
    """It is called, and names the column."""
    assert data.value("""
        import pandas as pd
        class Span:
            def __call__(self, column):
                return int(column.max() - column.min())
        frame = pd.DataFrame({"a": [1, 5]})
        result = frame.agg(Span()).tolist(), frame.a.agg([Span(), "max"]).to_dict()
    """) == ([4], {"Span": 4, "max": 5})


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
