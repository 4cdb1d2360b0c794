"""What analysis with numpy and pandas needs is there under the data policy."""

import importlib
import importlib.util

import pytest

from rlm_sandbox.language_wall.frozen_functions import freeze_all
from rlm_sandbox.language_wall.guards.attributes import AttributeRefused
from rlm_sandbox.policy import load_policy

# A payload of analysis may use what a library is about to deprecate.
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::PendingDeprecationWarning", "ignore::FutureWarning"
)


@pytest.fixture
def session(make_session):
    """A session under the data policy's imports."""
    return make_session(imports=load_policy("data").language.imports)


@pytest.mark.parametrize("name", ["func_globals", "func_code", "func_defaults", "func_closure", "func_dict"])
def test_no_part_of_a_function_of_cython_is_read(session, name):
    """Their names have no underscore, and its globals hold Python's own builtins."""
    default_rng = importlib.import_module("numpy.random").default_rng
    assert hasattr(default_rng, name)
    session.run("import numpy as np")
    for code in (
        f"np.random.default_rng.{name}",
        f"getattr(np.random.Generator.normal, '{name}')",
        f"import operator; operator.attrgetter('{name}')(np.random.default_rng)",
    ):
        with pytest.raises(AttributeRefused, match=f"'{name}' is not available"):
            session.run(code)


def test_ordinary_analysis_works(session, folders):
    """Loading, grouping, querying, formatting, saving to scratch."""
    result = session.value(
        """
        import numpy as np, pandas as pd, io
        limit = 1
        d = pd.DataFrame({"k": list("abab"), "v": [1, 2, 3, 4]})
        d["w"] = d.v * 2
        d.loc[d.v > 3, "w"] += 100
        grouped = d.groupby("k")["w"].agg(["sum", "max"])
        picked = d.query("v > @limit and k == 'b'")
        d.eval("z = v + w", inplace=True)
        d.to_csv("<scratch>/d.csv", index=False)
        back = pd.read_csv("<scratch>/d.csv")
        rng = np.random.default_rng(0)
        a = np.array([[1, 2], [3, 4]])
        a[0] += 10; a.resize((1, 4), refcheck=False) if False else None
        np.save("<scratch>/a.npy", a)
        result = (grouped.to_dict(), picked.v.tolist(), back.equals(d), d.z.sum(), np.load("<scratch>/a.npy").sum(),
                  a.T.shape, f"{a.mean():.2f}", type(a).__name__, type(d) is pd.DataFrame, rng.integers(1, 2))
        """.replace("<scratch>", str(folders["scratch"]))
    )
    assert result[0] == {"sum": {"a": 8, "b": 112}, "max": {"a": 6, "b": 108}}
    assert result[1:5] == ([2, 4], True, 130, 30)
    assert result[5:] == ((2, 2), "7.50", "ndarray", True, 1)


@pytest.mark.skipif(importlib.util.find_spec("scipy") is None, reason="scipy is not among the development requirements")
def test_distributions_of_ones_own_can_be_made(session):
    """scipy.stats compiles a text for each, of the names of its parameters: from values, a histogram, a class."""
    result = session.value("""
        import numpy as np
        from scipy import stats
        class Ramp(stats.rv_continuous):
            def _pdf(self, x, top): return 2 * x / top**2
            def _cdf(self, x, top): return x**2 / top**2
        dice = stats.rv_discrete(name="dice", values=([1, 2, 3], [0.2, 0.3, 0.5]))
        drawn = stats.rv_histogram(np.histogram([1, 2, 3, 2, 2], bins=3))
        ramp = Ramp(name="ramp", a=0, shapes="top")
        result = (float(dice.pmf(3)), float(drawn.cdf(3)), float(ramp.cdf(1, 2)), float(ramp.mean(1, loc=1)) > 1,
                  float(ramp(2).cdf(2)))
        """)
    assert result == (0.5, 1.0, 0.25, True, 1.0)


def test_the_harmless_parts_of_denied_packages_are_there(session):
    """Sliding windows, numpy.emath and pandas.testing give what they give in plain Python."""
    result = session.value("""
        import numpy as np, pandas as pd
        from numpy.lib.stride_tricks import sliding_window_view
        from pandas.testing import assert_series_equal
        class Lying(np.ndarray): shape = property(lambda self: (10**6,))
        windows = sliding_window_view(np.arange(6), 3)
        square = np.lib.stride_tricks.sliding_window_view(np.eye(4), (2, 2), axis=(0, 1))
        assert_series_equal(pd.Series([1, 2]), pd.Series([1, 2]))
        try: pd.testing.assert_frame_equal(pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [2]}))
        except AssertionError as error: message = str(error).splitlines()[0]
        result = (windows.sum(axis=1).tolist(), square.shape, complex(np.emath.sqrt(-1)), message,
                  sliding_window_view(np.arange(4).view(Lying), 2).shape)
    """)
    assert result[:3] == ([3, 6, 9, 12], (3, 3, 2, 2), 1j)
    assert "different" in result[3]
    assert result[4] == (3, 2)


def test_a_part_that_numpy_imports_when_it_is_asked_for_is_there(session):
    """numpy.matlib needs no import, as in plain Python; numpy.ctypeslib, loaded likewise, stays out."""
    result = session.value("""
        import numpy as np
        try: np.ctypeslib
        except AttributeError as error: message = str(error)
        result = (np.matlib.ones((2, 3)).sum(), "matlib" in vars(np), message)
    """)
    assert result[:2] == (6, True)
    assert "left out" in result[2]


def test_tables_are_styled_without_templates_of_one_s_own(session):
    """What pandas' own templates make of a style is there; the templates themselves are in no one's hands."""
    result = session.value("""
        import pandas as pd
        class Config: env = "production"
        d = pd.DataFrame({"a": [1.5, 2.25]})
        style = d.style.format("{:.3f}").highlight_max(color="red").set_caption("figures")
        result = (style.to_html(), style.to_latex(), Config.env, Config().env)
        for read in (lambda: style.env, lambda: type(style).template_html, lambda: getattr(style, "template_string"),
                     lambda: style.from_custom_template("/tmp", "x.html")):
            try: read()
            except AttributeError as error: message = str(error)
            else: raise AssertionError("a template is there")
        result += (message,)
    """)
    assert "2.250" in result[0]
    assert "figures" in result[0]
    assert "background-color: red" in result[0]
    assert "2.250" in result[1]
    assert result[2:4] == ("production", "production")
    assert "function of your own" in result[4]


def test_formulas_see_the_variables_of_the_code_that_asks(session):
    """Patsy finds functions and data in the cell, and in the function around, but nothing that belongs to the host."""
    result = session.value("""
        import numpy as np, patsy
        y, x = [1.0, 2.0, 3.0], [1.0, 2.0, 4.0]
        def double(values): return np.asarray(values) * 2
        def design(z):
            half = lambda values: np.asarray(values) / 2
            return patsy.dmatrix("half(z) + double(x) + np.log(x)").tolist()
        outcome, matrix = patsy.dmatrices("y ~ center(x) + C(list('aba'))")
        names = patsy.EvalEnvironment.capture(0).namespace
        result = (design([2, 4, 6]), outcome.ravel().tolist(), matrix.shape, names["x"], "__builtins__" in names)
    """)
    assert result[0][2] == [1.0, 3.0, 8.0, pytest.approx(1.386294)]
    assert result[1:] == ([1.0, 2.0, 3.0], (3, 3), [1.0, 2.0, 4.0], False)


@pytest.mark.filterwarnings("ignore:registration of accessor")  # a cell that runs again says so
def test_accessors_named_aggregations_and_texts_that_format_work(session):
    """What names attributes in text does so as in plain Python, as long as they are harmless."""
    result = session.value("""
        import pandas as pd
        import matplotlib.pyplot as plt
        for more in (0, 1):
            @pd.api.extensions.register_dataframe_accessor("rows")
            class Rows:
                def __init__(self, frame): self.frame = frame
                def count(self): return len(self.frame) + more
        d = pd.DataFrame({"a": [1, 2, 3], "k": [0, 0, 1]})
        spread = d.groupby("k")["a"].agg(lo="min", hi="max")
        total = d.groupby("k").agg(total=("a", "sum"))
        figure, axes = plt.subplots()
        axes.xaxis.set_major_formatter("{x:.1f} km")
        result = (d.rows.count(), spread.values.tolist(), total["total"].tolist(), d["a"].agg("quantile", q=0.5),
                  axes.xaxis.get_major_formatter()(-2), plt.getp(figure, "dpi"), plt.getp(axes, "title"))
        plt.close(figure)
    """)
    assert result == (4, [[1, 2], [3, 3]], [3, 3], 2.0, "\N{MINUS SIGN}2.0 km", 100.0, "")


def test_compiled_methods_look_at_their_object(session):
    """Cython's methods, read from their class, would take the memory of any object for their own."""
    with pytest.raises(TypeError, match="cannot be called with 'object'"):
        session.run("import pyarrow\npyarrow.DataType.to_pandas_dtype(object())")
    with pytest.raises(TypeError, match="cannot be called with 'nothing'"):
        session.run("pyarrow.Array.slice()")
    session.run("made = pyarrow.Array.slice(pyarrow.array([1, 2, 3]), 1, length=1).to_pylist()")
    assert session.namespace["made"] == [2]


def test_arrays_go_through_any_file(session, folders):
    """Files of open, compressed and temporary ones, and those in memory."""
    result = session.value(
        """
        import gzip, io, tempfile
        import numpy as np
        made = []
        for file in (open("<scratch>/a.npy", "w+b"), io.BytesIO(), tempfile.TemporaryFile(dir="<scratch>")):
            with file:
                np.save(file, np.arange(3))
                file.seek(0)
                made.append(np.load(file).tolist())
        with gzip.open("<scratch>/a.gz", "wb") as file: np.save(file, np.arange(3))
        with gzip.open("<scratch>/a.gz") as file: made.append(np.load(file).tolist())
        mapped = np.load("<scratch>/a.npy", mmap_mode="r")
        made.append(mapped.tolist())
        try: np.load("<scratch>/a.npy", mmap_mode="r+")
        except ValueError: made.append((mapped.flags.writeable, np.load("<scratch>/a.npy", "c").flags.writeable))
        with open("<scratch>/a.npy", "rb", buffering=0) as raw:
            with type(raw)("<scratch>/a.npy") as again: made.append(again.read() == raw.read())
        result = made
        """.replace("<scratch>", str(folders["scratch"]))
    )
    assert result == [[0, 1, 2]] * 5 + [(False, True), True]


def test_figures_are_drawn_though_functions_of_libraries_take_no_stores(session, monkeypatch):
    """The first one has pyplot describe functions of its own again."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.setattr(pyplot, "_backend_mod", None)
    freeze_all()
    session.run("""
        import matplotlib.pyplot as plt
        figure, axes = plt.subplots()
        axes.plot([1, 2])
        plt.close(figure)
    """)


def test_functions_that_compile_themselves_when_first_called_work_though_they_take_no_stores(session) -> None:
    """Most of networkx's do."""
    pytest.importorskip("networkx")
    freeze_all()
    session.run("import networkx as nx\nresult = nx.pagerank(nx.path_graph(2))")
    assert session.namespace["result"] == {0: 0.5, 1: 0.5}


def test_selectors_of_soups_work_without_their_module(make_session) -> None:
    """Each way to select; what does it is no module, and cannot be changed."""
    pytest.importorskip("bs4")
    session = make_session(("bs4",))
    session.run("""
        from bs4 import BeautifulSoup
        soup = BeautifulSoup('<p class="x">one</p><p>two</p>', 'html.parser')
        css = soup.css
        result = ([tag.text for tag in soup.select('p.x')], soup.select_one('p').text, len(list(css.iselect('p'))),
                  css.escape('a.b'), len(css.filter('p')), css.select(css.compile('p.x'))[0].text, css.match('p'),
                  soup.p.css.closest('p').text, hasattr(css.api, 'css_parser'))
        try: css.api.select = print
        except AttributeError: result += ('kept',)
    """)
    assert session.namespace["result"] == (["one"], "one", 2, "a\\.b", 2, "one", False, "one", False, "kept")


def test_bars_in_windows_are_left_out(make_session) -> None:
    """They hold matplotlib.pyplot itself."""
    pytest.importorskip("tqdm")
    session = make_session(("tqdm",))
    with pytest.raises(AttributeError, match="left out"):
        session.run("import tqdm\ntqdm.tqdm_gui")
    with pytest.raises(ImportError):
        session.run("import tqdm.gui")


def test_a_signature_shows_as_text_what_no_module_gives(make_session) -> None:
    """The default of ``yaml.parse`` is a loader that finds any object by its name."""
    session = make_session(imports=("functools", "inspect", "yaml"))
    shown = session.value(
        """
        import functools, inspect, yaml
        class Own(inspect.Signature): pass
        @functools.wraps(yaml.parse)
        def wrapped(*args): pass
        found = [inspect.signature(yaml.parse), inspect.signature(wrapped), Own.from_callable(yaml.scan)]
        defaults = [each.parameters["Loader"].default for each in found]
        def own(x=dict, *, key=len) -> type: pass
        kept = inspect.signature(own)
        result = (*defaults, *inspect.getfullargspec(yaml.compose).defaults, type(found[2]) is Own,
                  kept.parameters["x"].default is dict, kept.parameters["key"].default is len)
        """
    )
    assert shown == (*["<class 'yaml.loader.Loader'>"] * 4, True, True, True)


def test_a_loader_of_yaml_finds_no_object_by_its_name(make_session) -> None:
    """However a session has come by its class; the kernel's own code may use it as it is."""
    yaml = pytest.importorskip("yaml")
    session = make_session(imports=("yaml",), helpers={"lent": yaml.UnsafeLoader})
    for call in ("find_python_name('builtins.dict', None)", "find_python_module('json', None)"):
        with pytest.raises(TypeError, match="yaml makes no objects that a text names in this session: use"):
            session.run(f"lent('a').{call}")
    with pytest.raises(TypeError, match=r"use yaml\.safe_load"):
        session.run("lent('!!python/object/apply:dict []').get_data()")
    assert yaml.unsafe_load("!!python/object/apply:dict []") == {}
