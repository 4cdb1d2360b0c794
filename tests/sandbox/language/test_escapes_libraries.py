# ruff: noqa: E501 - cells are shown as they are run
"""Escapes: numpy and pandas under the data policy."""

import pytest

from rlm_sandbox.policy import load_policy

pytest.importorskip("numpy", reason="numpy is an optional extra")
pytest.importorskip("pandas", reason="pandas is an optional extra")

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

REAL = {
    "globals of a Cython function": "import numpy as np\nloot = np.random.default_rng.func_globals if hasattr(np.random.default_rng, 'func_globals') else np.sum.__globals__",
    "ctypes of an array": "import numpy as np\nloot = np.arange(3).ctypes._ctypes",
    "numpy's ctypeslib": "import numpy as np\nloot = np.ctypeslib",
    "numpy's f2py": "import numpy.f2py\nloot = numpy.f2py",
    "numpy's testing": "import numpy.testing\nloot = numpy.testing._private",
    "numpy's sys": "import numpy as np\nloot = np._core.multiarray",
    "numpy's lib": "import numpy as np\nloot = np.lib.format",
    "fromfile": "import numpy as np\nloot = np.fromfile('<outside>/secret.txt', 'u1').tobytes()",
    "memmap": "import numpy as np\nloot = np.memmap('<outside>/secret.txt', 'u1', 'r').tobytes()",
    "loadtxt": "import numpy as np\nloot = str(np.loadtxt('<outside>/secret.txt', dtype=str, delimiter='|'))",
    "genfromtxt": "import numpy as np\nloot = str(np.genfromtxt('<outside>/secret.txt', dtype=str, delimiter='|'))",
    "DataSource": "import numpy as np\nloot = np.lib.npyio.DataSource().open('<outside>/secret.txt').read()",
    "vectorised getattr": "import numpy as np, json\nloot = np.vectorize(getattr, otypes=[object])([json.dumps], '__globals__')[0]",
    "frompyfunc": "import numpy as np, json\nloot = np.frompyfunc(getattr, 2, 1)(json.dumps, '__globals__')",
    "read_csv": "import pandas as pd\nloot = pd.read_csv('<outside>/secret.txt').columns[0]",
    "read_table": "import pandas as pd\nloot = pd.read_table('<outside>/secret.txt').columns[0]",
    "read_fwf": "import pandas as pd\nloot = ' '.join(pd.read_fwf('<outside>/secret.txt').columns)",
    "query": "import pandas as pd\nd = pd.DataFrame({'a': [1]})\ngot = []\nf = got.append\n\ntry: d.query('@f(@pd.io.common)', engine='python')\nexcept KeyError: loot = got[0]",
    "query by a function's globals": "import pandas as pd\nd = pd.DataFrame({'a': [1]})\ngot = []\nf = got.append\n\ntry: d.query('@f(@pd.read_csv.__globals__)', engine='python')\nexcept KeyError: loot = got[0]",
    "pandas.eval": "import pandas as pd\ngot = []\nf = got.append\npd.eval('f(pd.read_csv.__globals__)', engine='python')\nloot = got[0]",
    "eval of a frame": "import pandas as pd\nd = pd.DataFrame({'a': [1]})\ngot = []\nf = got.append\nd.eval('x = @f(@pd.read_csv.__globals__)', engine='python')\nloot = got[0]",
    "pandas' io": "import pandas as pd\nloot = pd.io.common.os",
    "pandas' core": "import pandas.core.common as c\nloot = c",
    "globals of a method": "import pandas as pd\nloot = pd.DataFrame.query.__globals__",
    "manager of a frame": "import pandas as pd\nloot = pd.DataFrame({'a': [1]})._mgr.__class__.__init__.__class__ and pd.DataFrame._constructor.fget.__globals__",
    "pipe": "import pandas as pd\nloot = pd.DataFrame({'a': [1]}).pipe(getattr, '__class__').query.__globals__",
    "apply getattr": "import pandas as pd\nloot = pd.Series([pd.read_csv]).map(lambda f: f.__globals__)[0]",
    "agg by a name": "import pandas as pd\nloot = getattr(pd.Series([1]), '_constructor').query.__globals__ if False else pd.Series.map.__globals__",
}


@pytest.fixture
def data(make_attacks):
    """Attacks on a session under the data policy's imports."""
    return make_attacks(imports=load_policy("data").language.imports)


@pytest.mark.parametrize("payload", REAL.values(), ids=REAL)
def test_a_payload_that_uses_numpy_or_pandas_gets_nothing(data, payload):
    """Each works without the wall and holds behind it."""
    assert data.works_without_wall(payload)
    data.holds(payload)


STEPS = {
    "pickled arrays": "import numpy as np, io\nb = io.BytesIO()\nnp.save(b, np.array([print], object), allow_pickle=True)\nb.seek(0)\nnp.load(b, allow_pickle=True)",
    "read_pickle": "import pandas as pd\npd.read_pickle('<workspace>/data.txt')",
    "to_pickle": "import pandas as pd\npd.to_pickle({}, '<scratch>/x')",
    "HDFStore": "import pandas as pd\npd.HDFStore('<scratch>/x')",
    "to_csv outside": "import pandas as pd\npd.DataFrame({'a': [1]}).to_csv('<outside>/x.csv')",
    "save outside": "import numpy as np\nnp.save('<outside>/x.npy', np.arange(3))",
    "tofile outside": "import numpy as np\nnp.arange(3).tofile('<outside>/x')",
    "read from the network": "import pandas as pd\npd.read_csv('http://127.0.0.1:9/x')",
    "clipboard": "import pandas as pd\npd.read_clipboard()",
    "as_strided": "import numpy as np\nnp.lib.stride_tricks.as_strided(np.arange(3), (100,), (8,))",
    "windows of an array that lies about itself": "import numpy as np\nfrom numpy.lib.stride_tricks import sliding_window_view\nclass A(np.ndarray): strides = property(lambda self: (10**9,))\nsliding_window_view(np.arange(4).view(A), 2, subok=True)",
    "windows of a size that lies about itself": "import numpy as np\nclass I(int):\n    def __lt__(self, other): return False\n    def __gt__(self, other): return False\nnp.lib.stride_tricks.sliding_window_view(np.arange(3), I(50))",
    "file formats of numpy": "import numpy.lib.format",
    "internals of pandas.testing": "import pandas as pd\npd.testing._testing",
    "resize without a check": "import numpy as np\na = np.arange(3)\nb = a[:]\na.resize((0,), refcheck=False)",
    "raw interface of an array": "import numpy as np\nnp.arange(3).__array_interface__",
    "interface by a class": "import numpy as np\nclass A: __array_interface__ = {'data': (0, False), 'shape': (1,), 'typestr': '|u1', 'version': 3}\nnp.asarray(A())",
    "state of an array": "import numpy as np\nnp.arange(3).__setstate__((1, (1,), np.dtype('O'), False, [0]))",
    "reduce of an array": "import numpy as np\nnp.arange(3).__reduce__()[0].__globals__",
    "store into the library": "import numpy as np\nnp.ndarray.sum = 1",
    "store into a class": "import pandas as pd\npd.DataFrame.query = 1",
}


@pytest.mark.parametrize("payload", STEPS.values(), ids=STEPS)
def test_the_first_step_of_an_escape_is_refused(data, folders, payload):
    """Each payload raises."""
    assert data.holds(payload) != "got nothing"
    assert sorted(path.name for path in folders["outside"].iterdir()) == ["secret.txt"]


def test_ordinary_analysis_works(data):
    """Loading, grouping, querying, formatting, saving to scratch."""
    result = data.session.value(
        data.fill("""
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
    """)
    )
    assert result[0] == {"sum": {"a": 8, "b": 112}, "max": {"a": 6, "b": 108}}
    assert result[1:5] == ([2, 4], True, 130, 30)
    assert result[5:] == ((2, 2), "7.50", "ndarray", True, 1)


def test_the_harmless_parts_of_denied_packages_are_there(data):
    """Sliding windows, numpy.emath and pandas.testing give what they give in plain Python."""
    result = data.session.value("""
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
