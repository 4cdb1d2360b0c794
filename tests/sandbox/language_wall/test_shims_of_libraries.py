"""Functions of numpy, pandas, matplotlib and YAML that evaluate text, read by name or reach raw memory."""

import collections
import sys
import types
from typing import Any

import pytest

from rlm_sandbox.language_wall.guards.attributes import AttributeRefused
from rlm_sandbox.language_wall.modules.attribute_names import _reader_of_parameters, _take_plain_templates
from rlm_sandbox.language_wall.modules.libraries import _own_init
from rlm_sandbox.policy import load_policy

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

_BEGIN = """
import io, struct
import numpy as np, pandas as pd
objects = np.array([object(), 1], dtype=object)
letters = np.array(list("abcdef"), dtype=object)
frame = pd.DataFrame({"k": list("abab"), "v": [1, 2, 3, 4]})
class File:
    def fileno(self): return 0
class Mine(io.BufferedReader):
    def fileno(self): return 0
strided = np.lib.stride_tricks.as_strided
"""


@pytest.fixture
def session(make_session: Any) -> Any:
    """A session under the data policy's imports, with something of each library."""
    made = make_session(imports=load_policy("data").language.imports)
    made.run(_BEGIN)
    return made


@pytest.fixture
def values(session: Any, folders: Any) -> Any:
    """The values of expressions."""

    def evaluate(*expressions: str) -> list[object]:
        listed = ", ".join(expressions).replace("<scratch>", str(folders["scratch"]))
        return list(session.value(f"result = [{listed}]"))

    return evaluate


@pytest.fixture
def refused(session: Any, folders: Any) -> Any:
    """Each expression raises an error of this name, and says this."""

    def check(error: str, said: str, *expressions: str) -> None:
        for expression in expressions:
            code = f"""
                result = None
                try: {expression.replace("<scratch>", str(folders["scratch"]))}
                except Exception as error: result = type(error).__name__, str(error)
            """
            result = session.value(code)
            assert result is not None, expression
            assert result[0] == error, (expression, result)
            assert said in result[1], expression

    return check


def test_references_are_no_bytes(refused: Any) -> None:
    """Whoever writes or reads the bytes of an array of objects forges or learns addresses."""
    refused(
        "TypeError",
        "cannot be read or written as bytes",
        "np.frombuffer(objects, dtype='u8')",
        "struct.pack_into('Q', objects, 0, 1)",
        "struct.Struct('Q').pack_into(objects, 0, 1)",
        "memoryview(objects).cast('B')",
        "memoryview.cast(memoryview(objects), 'B')",
        "io.BytesIO(b'12345678').readinto(objects)",
        "np.ndarray((2,), dtype='i8', buffer=objects)",
    )
    refused(
        "TypeError",
        "cannot be made from bytes",
        "np.ndarray((2,), dtype=object, buffer=b'x' * 16)",
        "np.ndarray((1,), dtype=object, buffer=letters, offset=4)",
        "np.ndarray((1,), dtype=object, buffer=letters, strides=(3,))",
    )
    refused("TypeError", "is not a subtype", "np.ndarray.__new__(int, (2,))", "np.ndarray.__new__(3, (2,))")


def test_bytes_stay_bytes(session: Any, values: Any) -> None:
    """The same functions do their ordinary work."""
    session.run("filled = bytearray(8); struct.pack_into('B', filled, 0, 7); io.BytesIO(b'xy').readinto(filled)")
    assert values(
        "np.frombuffer(bytes([1, 2]), dtype='u1').tolist()",
        "bytes(filled[:3])",
        "memoryview(b'ab').cast('b').tolist()",
        "np.ndarray((2,), dtype=object, buffer=letters).tolist()",
        "np.ndarray((2,), 'u1', b'ab').tolist()",
    ) == [[1, 2], b"xy\0", [97, 98], ["a", "b"], [97, 98]]


def test_arrow_takes_bytes_and_no_references(values: Any, refused: Any) -> None:
    """A buffer of Arrow shows whatever memory it was made of."""
    pytest.importorskip("pyarrow")
    assert values("__import__('pyarrow').py_buffer(b'abc').size") == [3]
    refused("TypeError", "as bytes", "__import__('pyarrow').py_buffer(objects)")


def test_a_descriptor_comes_from_open_only(session: Any, folders: Any, values: Any, refused: Any) -> None:
    """C code reads and writes the descriptor that a file says it has."""
    refused("TypeError", "only a path or a binary file from open", "np.fromfile(File())", "np.arange(3).tofile(File())")
    forged = "Mine(io.BytesIO(b'x'))"
    refused("TypeError", "does not take a file of your own class", f"np.load({forged})", f"np.save({forged}, [1])")
    path = str(folders["scratch"] / "n")
    session.run(f"""
        np.arange(3, dtype="i8").tofile({path!r})
        with open({path!r}, "rb") as file: opened = np.fromfile(file, dtype="i8").tolist()
    """)
    assert (
        values(
            "np.fromfile('<scratch>/n', dtype='i8').tolist()",
            "opened",
            "np.rec.fromfile('<scratch>/n', formats='i8', names='a').a.tolist()",
            "np.rec.fromfile('<scratch>/n', dtype=[('a', 'i8')]).a.tolist()",
        )
        == [[0, 1, 2]] * 4
    )
    refused(
        "TypeError",
        "array of objects cannot be read from a file",
        "np.rec.fromfile('<scratch>/n', formats='O', names='a')",
        "np.rec.fromfile('<scratch>/n', dtype=[('a', 'O')])",
    )
    refused("ValueError", "allow_pickle", "np.load('<scratch>/n', allow_pickle=True)")
    refused("ValueError", "mmap_mode", "np.load('<scratch>/n', mmap_mode='r+')")


def test_a_view_of_ones_own_strides_stays_within_its_array(session: Any, values: Any, refused: Any) -> None:
    """``as_strided`` shows any memory in plain Python; of objects it gives a copy, in whole steps."""
    session.run("fixed = np.arange(6)[:]; fixed.flags.writeable = False")
    assert values(
        "strided(np.arange(6), (2, 3), (8, 8)).tolist()",
        "strided(letters, (2, 3), (8, 8)).tolist()",
        "strided(letters[1:], (2,)).tolist()",
        "strided(np.arange(6), (0, 3), (8, 8)).shape",
        "strided(np.array(5), (2, 2)).tolist()",
        "strided(fixed, (2, 2), (8, 8)).flags.writeable",
    ) == [[[0, 1, 2], [1, 2, 3]], [["a", "b", "c"], ["b", "c", "d"]], ["b", "c"], (0, 3), [[5, 5]] * 2, False]
    refused("ValueError", "in whole steps only", "strided(letters, (2, 3), (4, 8))")
    refused("ValueError", "", "strided(letters, (20, 3), (8, 8))", "strided(np.arange(6), (20, 3), (8, 8))")


def test_an_array_that_is_shown_elsewhere_keeps_its_memory(session: Any, values: Any, refused: Any) -> None:
    """``refcheck=False`` would leave a view of freed memory; a method of one's own is called as it is."""
    session.run("""
        class Own(np.ndarray):
            def resize(self, *shape, **options): return sorted(options)
        shown = np.arange(4)
        view = shown[:1]
    """)
    refused("ValueError", "resize", "shown.resize((10_000,), refcheck=False)")
    assert values("np.arange(3).view(Own).resize(1, refcheck=False)") == [["refcheck"]]


def test_a_generator_goes_on_within_its_buffer(session: Any, values: Any, refused: Any) -> None:
    """Whatever number for the place to go on at numpy is given, it reads the memory there."""
    session.run("""
        def going_on(make, at, *, inner=False):
            generator = make(1)
            state = generator.state
            (state["state"] if inner else state)["pos" if inner else "buffer_pos"] = at
            generator.state = state
            return np.random.Generator(generator).integers(100) >= 0
        old = np.random.RandomState(1)
        kept = old.get_state()
        def older(at):
            generator = np.random.MT19937(1)
            generator.state = ("MT19937", kept[1], at)
            return generator.state["state"]["pos"]
    """)
    mt, philox = "np.random.MT19937", "np.random.Philox"
    assert values(f"going_on({mt}, 5, inner=True)", f"going_on({philox}, 2)", "older(3)") == [True, True, 3]
    refused("ValueError", "must be 0 to 624", f"going_on({mt}, 625, inner=True)", f"going_on({mt}, -1, inner=True)")
    refused("ValueError", "must be 0 to 624", "older(10**6)", "old.set_state((kept[0], kept[1], 10**6))")
    refused("ValueError", "must be 0 to 4", f"going_on({philox}, 5)")


def test_expressions_of_pandas_follow_the_rules(values: Any, refused: Any) -> None:
    """Text that pandas evaluates reads harmless names only, with the variables of the cell or those given."""
    assert values(
        "pd.eval('frame.v + 1').tolist()",
        "pd.eval('x + 1', local_dict={'x': 2}, global_dict={})",
        "frame.query(\"k.str.upper() == 'A'\").v.tolist()",
    ) == [[2, 3, 4, 5], 3, [1, 3]]
    refused("AttributeRefused", "__class__", "pd.eval('frame.__class__')", "frame.eval('v.__class__')")
    refused("AttributeRefused", "__import__", "pd.eval('__import__')")
    refused("TypeError", "must be a str", "pd.eval(3)")
    refused("SyntaxError", "write it as Python code", "pd.eval('1 +* 2')", "frame.query('v >')")
    refused("TypeError", "level is not available", "frame.query('v > 2', level=1)", "frame.eval('v', level=2)")


def test_functions_that_pandas_finds_by_name_are_harmless(values: Any, refused: Any) -> None:
    """A name is looked up as a method of whatever is aggregated."""
    assert values(
        "pd.pivot_table(frame, values='v', index='k', aggfunc='sum').v.tolist()",
        "pd.pivot_table(frame, values='v', index='k', aggfunc={'v': ['min', 'max']}).shape",
        "pd.crosstab(frame.k, frame.v, values=frame.v, aggfunc='sum').shape",
    ) == [[4, 6], (2, 2), (2, 4)]
    refused(
        "AttributeRefused",
        "may not be named as a function",
        "pd.crosstab(frame.k, frame.v, values=frame.v, aggfunc='__reduce__')",
        "pd.pivot_table(frame, values='v', index='k', aggfunc={'v': ['min', '__reduce__']})",
    )


def test_accessors_and_columns_have_names_of_their_own(session: Any, values: Any, refused: Any) -> None:
    """An accessor may not take a name that pandas uses; a column may be read by one with an underscore."""
    session.run("""
        @pd.api.extensions.register_dataframe_accessor("of_a_test")
        class Accessor:
            def __init__(self, frame): self.frame = frame
            def size(self): return len(self.frame)
        merged = frame.merge(frame, on=["k", "v"], indicator=True)
        named = frame.rename(columns={"v": "a b"})
    """)
    assert values(
        "frame.of_a_test.size()", "merged._merge.tolist()[:1]", "[row._1 for row in named.itertuples(0)]"
    ) == [
        4,
        ["both"],
        [1, 2, 3, 4],
    ]
    refused(
        "ValueError",
        "needs a public name",
        "pd.api.extensions.register_dataframe_accessor('to_pickle')",
        "pd.api.extensions.register_series_accessor('_x')",
        "pd.api.extensions.register_index_accessor('a b')",
    )
    refused("AttributeRefused", "private to objects of 'DataFrame'", "frame._mgr", "merged._mgr")


def test_styles_format_by_the_rules(values: Any) -> None:
    """A template reads attributes as the session does; a function is called."""
    pytest.importorskip("jinja2")
    assert values(
        "'1.0' in frame.style.format('{:.1f}', subset=['v']).to_html()",
        "'<L>' in frame.style.format({'v': lambda value: '<L>'}).to_html()",
    ) == [True, True]


def test_properties_of_artists_are_read_by_the_rules(session: Any, values: Any, refused: Any) -> None:
    """``getp`` calls whatever begins with ``get_``, and a label formats by ``%`` or by braces."""
    pytest.importorskip("matplotlib")
    session.run("""
        import matplotlib, matplotlib.pyplot as plt
        matplotlib.use("agg"); plt.switch_backend("Agg")
        figure, axes = plt.subplots()
        line, = axes.plot([1, 2])
        bars = axes.bar([1], [2])
        old = [axes.bar_label(bars, fmt="%d")[0].get_text(), axes.bar_label(bars, fmt="{:.2f} x")[0].get_text()]
    """)
    assert values("plt.getp(line, 'linewidth')", "old", "plt.getp(line) is None") == [1.5, ["2", "2.00 x"], True]
    refused("TypeError", "needs the name of a property", "plt.getp(3)", "plt.getp(File())")
    refused("ValueError", "has no other backend", "matplotlib.use('tkagg')", "plt.switch_backend('module://os')")
    refused("AttributeRefused", "__globals__", "axes.bar_label(bars, fmt='{0.__globals__}')")


def test_yaml_makes_and_shows_plain_values_only(session: Any, values: Any, refused: Any) -> None:
    """A document can name any function of the process, and a dump reads whatever an object holds."""
    pytest.importorskip("yaml")
    session.run("import yaml")
    assert values("yaml.load('a: [1, 2]', None)", "yaml.dump({'a': 1})") == [{"a": [1, 2]}, "a: 1\n"]
    refused("ConstructorError", "python/object", "yaml.load('!!python/object/apply:os.system [ls]', yaml.SafeLoader)")
    refused("RepresenterError", "cannot be represented", "yaml.dump({'a': np.float64(1.5)}, Dumper=yaml.Dumper)")


# -- what serves libraries that are not among the development requirements


def test_parameters_of_an_estimator_are_read_by_the_rules() -> None:
    """A class of the session names them, and scikit-learn reads whatever it names."""

    class Estimator:
        get_params = _reader_of_parameters()
        names: tuple[str, ...] = ("alpha", "inner")
        alpha, _hidden = 1, 2
        inner: object = None

        def _get_param_names(self) -> tuple[str, ...]:
            return self.names

    inner = Estimator()
    outer = Estimator()
    outer.inner = inner
    whole = {"alpha": 1, "inner__alpha": 1, "inner__inner": None, "inner": inner}
    assert outer.get_params() == whole
    assert outer.get_params(deep=False) == {"alpha": 1, "inner": inner}
    for name in ("_hidden", "__globals__"):
        outer.names = (name,)
        with pytest.raises(AttributeRefused):
            outer.get_params()


def test_a_template_for_a_library_reads_no_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library formats objects of its own by it; a method that is changed is not changed again."""

    class Bar:
        @staticmethod
        def shown(template: str, value: object) -> str:
            return template.format(value)

        def titled(self, *, template: str) -> str:
            return template.format(self)

    class Text(str):
        __slots__ = ()

    module = types.ModuleType("bars_of_a_test")
    module.__dict__["Bar"] = Bar
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for name in ("shown", "titled", "shown", "none"):
        _take_plain_templates(module.__name__, "Bar", name)
    _take_plain_templates("no_module_of_a_test", "Bar", "shown")
    assert Bar.shown("{:>3}", 5) == "  5"
    assert Bar().titled(template="plain") == "plain"
    for template in ("{0.__class__}", Text("{}"), collections.UserString("{}")):
        with pytest.raises(AttributeRefused, match="of a text that reads such attributes"):
            Bar.shown(template, 5)  # type: ignore[arg-type]
        with pytest.raises(AttributeRefused, match="of a text that reads such attributes"):
            Bar().titled(template=template)  # type: ignore[arg-type]


def test_a_class_that_keeps_what_it_is_given_initialises_its_own_objects_only() -> None:
    """It would leave that in whatever object of the session it is called with."""

    class Keeper:
        def __init__(self, value: int) -> None:
            self.value = value

    class Derived(Keeper):
        """Of the session."""

    initialise = _own_init(Keeper, Keeper.__init__)
    made = Keeper(1)
    initialise(made, 5)
    assert made.value == 5
    assert not hasattr(initialise, "__wrapped__")
    with pytest.raises(TypeError, match="needs an object of that class"):
        initialise(Derived(1), 5)
