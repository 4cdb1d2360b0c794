"""Names of modules in data: what a library imports for a session is what the policy admits, or is there already."""

import importlib.util
import sys

import pytest

from rlm_sandbox.policy import load_policy

_NOT_ADMITTED = "antigravity"


@pytest.fixture
def data(make_session):
    """A session with the data libraries."""
    return make_session(imports=load_policy("data").language.imports)


@pytest.mark.parametrize(
    "step",
    [
        "pd.set_option('plotting.backend', name)",
        "pd.Series([1]).plot(backend=name)",
        "mpl.rcParams['backend'] = 'module://' + name; plt.figure()",
    ],
)
def test_a_backend_is_of_an_admitted_package(data, step, monkeypatch):
    """Its code would run for the session, and its functions stay open."""
    data.namespace["name"] = _NOT_ADMITTED
    data.run("import pandas as pd, matplotlib as mpl, matplotlib.pyplot as plt; plt.close('all')")
    monkeypatch.setattr(sys.modules["matplotlib.pyplot"], "_backend_mod", None)  # as before the first figure
    data.run(f"""
        kept, before = mpl.rcParams['backend'], pd.get_option('plotting.backend')
        try:
            {step}
        except (ImportError, ValueError, AttributeError):
            pass
        finally:
            dict.__setitem__(mpl.rcParams, 'backend', kept)
            pd.set_option('plotting.backend', before)
    """)
    assert _NOT_ADMITTED not in sys.modules


def test_pictures_are_drawn_as_ever(data):
    """By the backend that every session has."""
    data.run("""
        import pandas as pd, matplotlib.pyplot as plt
        figure, axes = plt.subplots()
        pd.Series([1, 2]).plot(ax=axes)
        lines = len(axes.lines)
        plt.close("all")
    """)
    assert data.namespace["lines"] == 1


@pytest.mark.skipif(sys.version_info < (3, 12), reason="tracebacks suggest names of modules since CPython 3.12")
def test_a_traceback_imports_nothing(session):
    """It looks for names like the one that the module has not, in the module that the error names."""
    assert importlib.util.find_spec(_NOT_ADMITTED) is not None
    session.namespace["name"] = _NOT_ADMITTED
    session.run("""
        import traceback
        shown = traceback.format_exception_only(ImportError("no", name=name, name_from="gravity"))
        similar = traceback.format_exception_only(ImportError("no", name="traceback", name_from="print_exs"))
    """)
    assert session.namespace["shown"] == ["ImportError: no\n"]
    assert "print_exc" in session.namespace["similar"][0]
    assert _NOT_ADMITTED not in sys.modules
