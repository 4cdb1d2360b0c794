# ruff: noqa: E501 - cells are shown as they are run
"""Escapes: frames, tracebacks, hooks, event loops, threads."""

import pytest

# A payload that is stopped half-way leaves coroutines, files and threads behind.
pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]

REAL = {
    "sys._getframe": "import sys\nloot = sys._getframe()",
    "sys._current_frames": "import sys\nloot = list(sys._current_frames().values())[0]",
    "inspect.currentframe": "import inspect\nloot = inspect.currentframe()",
    "inspect.stack": "import inspect\nloot = inspect.stack()[0].frame",
    "inspect.trace": "import inspect\ntry: 1/0\nexcept Exception: loot = inspect.trace()[0][0]",
    "traceback.walk_stack": "import traceback\nloot = next(traceback.walk_stack(None))[0]",
    "traceback.walk_tb": "import traceback\ntry: 1/0\nexcept Exception as e: loot = next(traceback.walk_tb(e.__traceback__))[0]",
    "sys.last exception": "import sys\ntry: 1/0\nexcept Exception: loot = sys.exc_info()[2].tb_frame.f_back",
    "sys.exception": "import sys\ntry: 1/0\nexcept Exception: loot = sys.exception().__traceback__.tb_frame",
    "sys.settrace": "import sys\ngot = []\nsys.settrace(lambda f, *a: got.append(f))\nlen([]); (lambda: 0)()\n"
    "sys.settrace(None)\nloot = got[0]",
    "sys.setprofile": "import sys\ngot = []\nsys.setprofile(lambda f, *a: got.append(f))\n(lambda: 0)()\n"
    "sys.setprofile(None)\nloot = got[0]",
    "threading.settrace": "import threading\ngot = []\nthreading.settrace(lambda f, *a: got.append(f))\n"
    "t = threading.Thread(target=len, args=('',)); t.start(); t.join()\nthreading.settrace(None)\nloot = got[0]",
    "generator by yield from": "def g(): yield from h()\ndef h(): yield\nx = g(); next(x)\nloot = x.gi_yieldfrom.gi_frame",
    "coroutine waiting": "import types\n@types.coroutine\ndef w(): yield\nasync def f(): await w()\nc = f(); c.send(None)\n"
    "loot = c.cr_await.gi_frame\nc.close()",
    "async generator by its frame": "async def g(): yield 1\nloot = g().ag_code",
    "task's stack": "import asyncio\nasync def f():\n    return asyncio.current_task().get_stack()[0]\nloot = asyncio.run(f())",
    "task's coroutine": (
        "import asyncio\nasync def f(): return asyncio.current_task().get_coro().cr_frame\nloot = asyncio.run(f())"
    ),
    "loop's module": (
        "import asyncio\nasync def f(): return asyncio.get_running_loop().__class__.__init__.__globals__\n"
        "loot = asyncio.run(f())"
    ),
    "loop by a future": (
        "import asyncio\nasync def f(): return asyncio.Future().get_loop().run_in_executor.__globals__\n"
        "loot = asyncio.run(f())"
    ),
    "loop by a private name": (
        "import asyncio\nasync def f(): return asyncio.current_task()._loop.__class__.__init__.__globals__\n"
        "loot = asyncio.run(f())"
    ),
    "gc": "import gc, json\nloot = [o for o in gc.get_referrers(json.dumps) if type(o) is dict and 'codecs' in o][0]",
    "traceback constructor": "try: 1/0\nexcept Exception as e: loot = type(e.__traceback__)(None, e.__traceback__.tb_frame, 0, 1).tb_frame",
    "frame's back": "def f():\n    try: 1/0\n    except Exception as e: return e.__traceback__.tb_frame.f_back\nloot = f()",
    "frame's globals": "try: 1/0\nexcept Exception as e: loot = e.__traceback__.tb_frame.f_globals",
    "frame's builtins": "try: 1/0\nexcept Exception as e: loot = e.__traceback__.tb_frame.f_builtins",
    "frame by format": "try: 1/0\nexcept Exception as e: loot = '{0.__traceback__.tb_frame}'.format(e) and e.__traceback__.tb_frame",
    "context manager's generator": (
        "import contextlib\n@contextlib.contextmanager\ndef c(): yield\nloot = c().gen.gi_frame"
    ),
    "wrapped by contextmanager": (
        "import contextlib\n@contextlib.contextmanager\ndef c(): yield\nloot = c.__globals__"
    ),
    "exit stack": (
        "import contextlib\ns = contextlib.ExitStack()\ns.callback(len)\nloot = s._exit_callbacks[0][1].__globals__"
    ),
    "thread pool's threads": (
        "from concurrent.futures import ThreadPoolExecutor\np = ThreadPoolExecutor(1)\np.submit(len, '')\n"
        "loot = list(p._threads)[0].run.__globals__\np.shutdown()"
    ),
    "main thread's globals": "import threading\nloot = threading.main_thread().run.__globals__",
    "except hook": "import sys\nloot = sys.excepthook.__self__",
    "display hook": "import sys\nloot = sys.displayhook.__self__",
    "stream": "import sys\nloot = sys.modules['sys']",
    "warnings' frame": "import warnings\nloot = warnings.catch_warnings()._module",
    "logging's frame": "import logging\nloot = logging.currentframe()",
    "logging's manager": "import logging\nloot = logging.getLogger().manager.getLogger.__globals__",
    "finaliser": "import weakref\nloot = weakref.finalize.atexit.fget.__globals__ if False else weakref.finalize.__init__.__globals__",
    "atexit": "import atexit\nloot = atexit",
    "async hooks": "import sys\nloot = sys.set_asyncgen_hooks.__self__",
    "monitoring": "import sys\nloot = sys.addaudithook.__self__",
}


@pytest.mark.parametrize("payload", REAL.values(), ids=REAL)
def test_a_payload_that_reaches_a_frame_gets_nothing(attacks, payload):
    """Each works without the wall and holds behind it."""
    assert attacks.works_without_wall(payload)
    attacks.holds(payload)
