"""The audit hook: when it is armed, for whom, and what it refuses."""

import contextlib
import ctypes
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import warnings

import pytest
from waiting import SECONDS

from rlm_sandbox.language_wall.audit_hook import trusted


@trusted
def trusted_read(path):
    return path.read_text()


def test_it_is_armed_only_while_user_code_runs(session, folders):
    """The host's own code opens what it likes, before, after and in trusted sections."""
    secret = folders["outside"] / "secret.txt"
    assert secret.read_text()
    with session.wall.user():
        with pytest.raises(PermissionError):
            secret.read_text()
        assert trusted_read(secret)
        with pytest.raises(PermissionError):
            secret.read_text()
    assert secret.read_text()


def test_it_stays_armed_after_an_error(session, folders):
    """A section ends however its block ends."""
    with contextlib.suppress(ValueError), session.wall.user():
        raise ValueError
    assert (folders["outside"] / "secret.txt").read_text()


def test_processes_and_sockets_are_refused(session):
    """As a library would start them."""
    with session.wall.user():
        for action in (lambda: subprocess.run(["true"], check=True), socket.socket):
            with pytest.raises(PermissionError, match="not available in this session"):
                action()


def test_a_policy_may_allow_the_network(make_session):
    """``network: true`` lifts that rule and no other."""
    wide = make_session(network=True)
    with wide.wall.user():
        socket.socket().close()
        with pytest.raises(PermissionError):
            subprocess.run(["true"], check=True)


def test_threads_of_user_code_are_watched_for_their_whole_life(session, folders):
    """Also after the cell that started them has ended, also a subclass, also a pool's."""
    path = str(folders["outside"] / "secret.txt")
    session.run(f"""
        import threading, pathlib
        from concurrent.futures import ThreadPoolExecutor
        go, results = threading.Event(), []
        def steal():
            go.wait({SECONDS})
            try: results.append(pathlib.Path({path!r}).read_text())
            except PermissionError: results.append("held")
        class Mine(threading.Thread):
            def run(self): steal()
        threads = [threading.Thread(target=steal), Mine(), threading.Timer(0, steal)]
        for thread in threads: thread.start()
        pool = ThreadPoolExecutor(1)
        future = pool.submit(steal)
    """)
    session.namespace["go"].set()
    for thread in session.namespace["threads"]:
        thread.join(SECONDS)
    session.namespace["future"].result(SECONDS)
    session.namespace["pool"].shutdown()
    assert session.namespace["results"] == ["held"] * 4


def test_threads_of_the_host_are_not(session, folders):
    """Started by the host, before or during user code."""
    results = []
    secret = folders["outside"] / "secret.txt"
    session.run("import threading\nt = threading.Thread(target=len, args=('',)); t.start(); t.join()")
    thread = threading.Thread(target=lambda: results.append(secret.read_text()))
    thread.start()
    thread.join(SECONDS)
    assert results


def test_threads_of_the_host_make_the_classes_they_like(session):
    """Once no cell runs: where a process has tried code and goes on with work of its own."""
    made = []
    session.run("x = 1")
    thread = threading.Thread(target=lambda: made.append(ctypes.c_ubyte * 7919))
    thread.start()
    thread.join(SECONDS)
    assert [cls.__name__ for cls in made] == ["c_ubyte_Array_7919"]


def test_user_code_cannot_switch_it_off(make_session, session, folders):
    """User code gets no context, and no variable of one has a say."""
    session = make_session(imports=(*session.wall.policy.language.imports, "contextvars"))
    path = str(folders["outside"] / "secret.txt")
    for source in (
        "import contextvars; contextvars.Context().run(open, PATH)",
        "import contextvars; contextvars.copy_context()",
        "import asyncio\nasync def f(): return asyncio.current_task().get_context()\nasyncio.run(f())",
        (
            "import contextvars; v = contextvars.ContextVar('rlm_sandbox_armed'); v.set(False)\n"
            "import pathlib; pathlib.Path(PATH).read_text()"
        ),
    ):
        with pytest.raises((AttributeError, PermissionError, RuntimeError)):
            session.run(f"PATH = {path!r}\n{source}")


def test_a_thread_is_watched_before_threading_knows_it(session, folders):
    """A subclass that replaces the start-up code runs before the thread is registered."""
    session.run(f"""
        import threading, pathlib
        done, results = threading.Event(), []
        class Early(threading.Thread):
            def _bootstrap(self):
                try: results.append(pathlib.Path({str(folders["outside"] / "secret.txt")!r}).read_text())
                except PermissionError: results.append("held")
                finally: self._started.set(); done.set()
        Early(daemon=True).start()
        done.wait({SECONDS})
    """)
    assert session.namespace["results"] == ["held"]


def test_text_that_a_library_compiles_must_need_no_guard(session):
    """The hook sees every compilation; only text that means the same with and without guards passes."""
    with session.wall.user():
        assert eval("1 + 1") == 2
        for text in (
            "().__class__.__base__.__subclasses__()",
            "__builtins__",
            "x.gi_frame",
            "getattr(x, 'y').z._q",
        ):
            with pytest.raises(PermissionError, match="compile text"):
                eval(text)


DISTRIBUTION = """
def _parse_args(self, top,  loc=0, scale=1):
    return (top, ), loc, scale

def _parse_args_rvs(self, top,  loc=0, scale=1, size=None):
    return self._argcheck_rvs(top,  loc, scale, size=size)

def _parse_args_stats(self, top,  loc=0, scale=1, moments='mv'):
    return (top, ), loc, scale, moments
"""
"""What scipy.stats compiles for a distribution with the parameter ``top``."""


def test_the_text_of_a_distribution_may_have_names_and_nothing_else(session):
    """It is an attribute of an object, which a class of the session can set: each other text is refused."""
    with session.wall.user():
        exec(DISTRIBUTION, {})
        exec(DISTRIBUTION.replace("top, ", "").replace("loc=0, scale=1", "loc=0").replace("loc, scale", "loc, 1"), {})
        for old, new in (
            ("size=size)\n", "size=size)\n    import os\n"),
            ("loc=0", "loc=[].append.__self__"),
            ("self._argcheck_rvs", "self.__class__._argcheck_rvs"),
            ("(top, )", "(top.__class__, )"),
            ("moments\n", "moments\nimport os\n"),
        ):
            assert old in DISTRIBUTION
            with pytest.raises(PermissionError, match="compile text"):
                exec(DISTRIBUTION.replace(old, new), {})


def test_libraries_that_generate_code_still_work(same):
    """namedtuple, dataclasses, ast, inspect and enum compile text of their own."""
    same("""
        import ast, collections, dataclasses, inspect, string, typing
        P = collections.namedtuple("P", "x y", defaults=[2])
        result = (P(1), ast.literal_eval("{'a': [1, -2.5]}"), ast.dump(ast.parse("x.__class__")),
                  str(inspect.signature(len)), typing.NamedTuple("N", [("a", int)])(1))
    """)


@pytest.mark.parametrize("stream", ["types.SimpleNamespace(fileno=lambda: 0)", "io.StringIO()"])
def test_what_asks_for_input_calls_a_stream_of_the_session_as_the_session(make_session, folders, monkeypatch, stream):
    """A library's method in the place of `readline` writes no file for it, though the wall's own call is trusted."""
    monkeypatch.setattr(sys, "stdin", sys.stdin)
    made = folders["outside"] / "made"
    make_session(blocked_names=()).run(f"""
        import functools, io, logging, sys, types
        handler = logging.FileHandler({str(folders["scratch"] / "log")!r}, delay=True)
        handler.baseFilename = {str(made)!r}
        log = logging.Logger('x')
        log.addHandler(handler)
        stream = {stream}
        stream.readline = functools.partial(log.warning, 'x')
        sys.stdin = stream
        try: input()
        except Exception: pass
    """)
    assert not made.exists()


def test_what_catches_warnings_is_handed_no_list_that_they_go_by(make_session):
    """Code that derives from it could put something into the list that is asked in the midst of an import."""
    make_session().run("""
        import re, warnings
        class Asked:
            def match(self, text): return True
        held = []
        class Caught(warnings.catch_warnings):
            def __setattr__(self, name, value):
                if name == '_module': held.append(value.filters)
                super().__setattr__(name, value)
        Caught()
        held[0].insert(0, ('ignore', Asked(), Warning, None, 0))
    """)
    assert {type(entry[1]) for entry in warnings.filters} <= {str, re.Pattern, type(None)}


def test_a_path_below_an_open_folder_is_taken_from_there(session, folders):
    """`os.open` tells the hook a relative path, and not the descriptor that it is relative to."""

    class Two:
        def __index__(self):
            return descriptor

    (folders["scratch"] / "part").mkdir()
    descriptor = os.open(folders["outside"], os.O_RDONLY)
    try:
        with contextlib.chdir(folders["scratch"]), session.wall.user():
            for name, flags in (("secret.txt", os.O_RDONLY), ("new.txt", os.O_WRONLY | os.O_CREAT)):
                with pytest.raises(PermissionError):
                    os.open(name, flags, dir_fd=descriptor)
            with pytest.raises(TypeError, match="integer"):
                os.open("part", os.O_RDONLY, dir_fd=Two())
            shutil.rmtree("part")
    finally:
        os.close(descriptor)
    assert [path.name for path in folders["outside"].iterdir()] == ["secret.txt"]
    assert not (folders["scratch"] / "part").exists()
