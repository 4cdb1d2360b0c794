"""``weakref.finalize``: compiled as code of the session."""

import sys
import weakref

import pytest

from rlm_sandbox.errors import PolicyViolation


def test_it_calls_a_function_once_when_an_object_is_gone(same):
    """Or when it is called; never after it was detached."""
    same("""
        import weakref
        class Thing: pass
        def work(*args, **named): calls.append((args, named)); return len(calls)
        calls, thing = [], Thing()
        kept, dropped, called = (weakref.finalize(thing, work, n, key=n) for n in range(3))
        before = kept.alive, dropped.detach()[2:], dropped.alive, called.peek()[2], called(), called(), called.alive
        kept.atexit = False
        del thing
        result = before, calls, kept.alive, kept.peek(), kept.detach(), kept(), type(kept).__module__, kept.atexit
    """)


@pytest.mark.parametrize(
    "source",
    [
        "thing = Thing(); weakref.finalize(thing, shutil.copyfile, SECRET, COPY); del thing",
        "weakref.finalize(Thing(), shutil.copyfile, SECRET, COPY)",
        "weakref.finalize(Thing(), *[shutil.copyfile], SECRET, COPY).peek",
        "weakref.finalize.__init__.__globals__",
        "weakref.finalize._registry",
        "weakref.finalize._exitfunc",
        "weakref.finalize._select_for_exit",
    ],
)
def test_it_is_no_way_out(session, folders, source, monkeypatch):
    """The call is one of the session's, whatever made the object go; the library's own class is not there."""
    assert session.value("import weakref; result = weakref.finalize") is not weakref.finalize
    copy = folders["scratch"] / "copy"
    session.run(f"""
        import shutil, tempfile
        SECRET, COPY = {str(folders["outside"] / "secret.txt")!r}, {str(copy)!r}
        class Thing: pass
    """)
    refused: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: refused.append(type(report.exc_value)))
    try:
        session.run(source)
    except (AttributeError, PolicyViolation) as error:
        refused.append(type(error))
    assert len(refused) == 1
    assert not copy.exists()


def test_the_librarys_own_is_not_found_in_what_uses_it(session, folders):
    """A temporary folder holds one."""
    session.run(f"""
        import tempfile
        class Folder(tempfile.TemporaryDirectory):
            def look(self): return type(self._finalizer)
        folder = Folder(dir={str(folders["scratch"])!r})
    """)
    with pytest.raises((AttributeError, TypeError)):
        session.run("with folder: folder.look()")
