"""Imports that a library makes when it is called: done as the library, complete or undone."""

import sys
from pathlib import Path

import pytest

from rlm_sandbox.language_wall import frozen_functions
from rlm_sandbox.language_wall.modules.late_imports import LATE
from rlm_sandbox.policy import load_policy

LIBRARY = """
import typing
def plot():
    from late_library import half
    return half.make()
def fail():
    import late_library.broken
"""
HALF = """
import os, typing
NAMES = os.listdir("/")
class Pair(typing.NamedTuple):
    left: "int"
def make():
    return Pair(len(NAMES) > 0)
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A library whose function imports what reads a folder and compiles text, as pandas does for plots."""
    folder = tmp_path / "late_library"
    folder.mkdir()
    (folder / "__init__.py").write_text(LIBRARY)
    (folder / "half.py").write_text(HALF)
    (folder / "broken.py").write_text("from late_library import half\nraise OSError('not today')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    for name in [name for name in sys.modules if name.startswith("late_library")]:
        del sys.modules[name]


def test_a_library_imports_late_what_it_needs(make_session, library) -> None:
    """Its own code runs as the library's; what calls it is watched before and after."""
    session = make_session((*load_policy("default").language.imports, "late_library"))
    session.run("import late_library\nresult = late_library.plot()")
    assert session.namespace["result"].left is True
    with pytest.raises(PermissionError):
        session.run("import os\nos.listdir('/')")


def test_one_that_fails_leaves_no_module_behind(make_session, library) -> None:
    """Whoever tries again gets the same error, and not half a module."""
    session = make_session((*load_policy("default").language.imports, "late_library"))
    for _ in range(2):
        with pytest.raises(OSError, match="not today"):
            session.run("import late_library\nlate_library.fail()")
        assert "late_library.half" not in sys.modules
        assert "late_library" in sys.modules
    assert session.value("result = late_library.plot().left") is True


def test_what_a_failed_import_has_brought_is_hardened(make_session, library) -> None:
    """The module of another package stays; no function of it takes a store that its own code makes for a session."""
    other = library.parent / "late_other"
    other.mkdir()
    (other / "__init__.py").write_text("def kept(): pass\ndef change():\n    kept.mark = 1\n")
    (library / "uses.py").write_text("import late_other\nraise OSError('not today')\n")
    (library / "__init__.py").write_text("import sys\ndef change():\n    sys.modules['late_other'].change()\n")
    session = make_session((*load_policy("default").language.imports, "late_library", "late_other"))
    frozen_functions.freeze_all()
    try:
        session.run("import late_library")
        with pytest.raises(OSError, match="not today"):
            session.run("import late_library.uses")
        with pytest.raises(AttributeError):
            session.run("late_library.change()")
    finally:
        sys.modules.pop("late_other", None)


def test_half_a_module_is_not_taken_for_a_whole_one(make_session, library) -> None:
    """Another thread imports in the middle of it; what the module defines afterwards is frozen with the rest."""
    (library / "half.py").write_text(
        "import sys, threading\n"
        "other = threading.Thread(target=sys.modules['late_library'].meanwhile[0])\n"
        "other.start()\n"
        "other.join()\n"
        "def kept(): pass\ndef change():\n    kept.mark = 1\n"
    )
    (library / "__init__.py").write_text("meanwhile = [None]\n")
    session = make_session((*load_policy("default").language.imports, "late_library", "late_library.half"))
    frozen_functions.freeze_all()
    session.run("""
        import late_library
        def meanwhile():
            import json
        late_library.meanwhile[0] = meanwhile
        from late_library import half
    """)
    with pytest.raises(AttributeError):
        session.run("half.change()")


def test_what_the_policy_does_not_admit_is_watched(make_session, library) -> None:
    """A package beside the admitted ones is not run as theirs."""
    make_session()
    assert LATE.find_spec("late_library") is None
    assert LATE.find_spec("json.decoder") is None
