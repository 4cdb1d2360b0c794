"""What a library, or we, read by the session's wish: nothing that the session could not read reaches its code."""

import asyncio

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
            def done(self):
                return False
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


def test_a_group_keeps_its_loop_in_itself(session):
    """Not in an object of the session that its method is called with."""
    session.run("""
        import asyncio
        class Own:
            _entered, _loop, _parent_task = False, None, None
        own, results = Own(), []
        async def one(): return 1
        async with asyncio.TaskGroup() as group:
            task = group.create_task(one())
        results.append(task.result())
        async with asyncio.timeout(60):
            results.append(await one())
        try:
            await asyncio.TaskGroup.__aenter__(own)
        except TypeError:
            results.append("refused")
    """)
    assert session.namespace["results"] == [1, 1, "refused"]
    assert session.namespace["own"]._loop is None


def test_a_timeout_shows_no_handle(session):
    """A handle keeps the loop and a context, and its class leaves them in whatever it is called with."""
    with pytest.raises(TypeError, match="may not be subclassed"):
        session.run("import asyncio\nclass Own(asyncio.Timeout): pass")
    session.namespace["handle"] = asyncio.Handle.__new__(asyncio.Handle)
    with pytest.raises(TypeError, match="not available"):
        session.run("type(handle)")


def test_a_refused_class_receives_no_state_of_a_library(session):
    """Its statement has failed, but what was called meanwhile has it."""
    session.run("""
        import configparser, copy
        made, states = [], []
        class Keeps:
            def __set_name__(self, owner, name):
                made.append(owner)
                raise ValueError
        try:
            class Own(configparser.SectionProxy):
                kept = Keeps()
                def __setstate__(self, state): states.append(state)
        except (ValueError, RuntimeError):
            pass
        copy.copy(made[0](configparser.ConfigParser(), "a"))
    """)
    assert [name for state in session.namespace["states"] for name in state if name.startswith("_")] == []
