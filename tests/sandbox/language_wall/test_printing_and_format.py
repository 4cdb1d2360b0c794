"""print, f-strings, str.format, string.Formatter, templates."""

import sys
from typing import Any

import pytest

from rlm_sandbox.language_wall import streams


class Written(list[str]):
    """A stream that keeps each write by itself, as the kernel's sends it."""

    def write(self, text: str) -> None:
        """Keep it."""
        self.append(text)

    def flush(self) -> None:
        """Note that it was called."""
        self.append("(flush)")


class Prints:
    """An object whose text prints something itself, after what stands before it."""

    def __str__(self) -> str:
        streams.print("inner")
        return "outer"


class Writes:
    """An object whose text writes something itself."""

    def __str__(self) -> str:
        sys.stdout.write("inner")
        return "outer"


class Fails:
    """An object without a text."""

    def __str__(self) -> str:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("values", "options", "pieces"),
    [
        (("a", 1, 2.5, True, None), {}, ["a 1 2.5 True None\n"]),
        (("a", "b"), {"sep": "", "end": "!"}, ["ab!"]),
        ((), {}, ["\n"]),
        (("a",), {"flush": True}, ["a\n", "(flush)"]),
        (("a", [1]), {}, ["a [1]\n"]),
        (("a", Prints(), "b"), {}, ["a inner\n", "outer b\n"]),
        (("a", Writes(), "b"), {}, ["a inner", "outer b\n"]),
        ((), {"end": ""}, [""]),
    ],
)
def test_one_print_is_one_write_in_the_order_in_which_texts_are_made(
    monkeypatch: pytest.MonkeyPatch, values: tuple[Any, ...], options: dict[str, Any], pieces: list[str]
) -> None:
    """Each write is a message to another process: a loop that prints took three times as long as elsewhere."""
    written = Written()
    monkeypatch.setattr("sys.stdout", streams.safe_stream(written))
    streams.print(*values, **options)
    assert written == pieces


def test_what_stands_before_a_value_without_a_text_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python does; and nothing of it waits for the next print."""
    written = Written()
    monkeypatch.setattr("sys.stdout", streams.safe_stream(written))
    with pytest.raises(ZeroDivisionError):
        streams.print("a", Fails(), "b")
    streams.print("c")
    assert written == ["a ", "c\n"]


def test_print_takes_all_its_arguments(same):
    """sep, end, file, flush."""
    same("""
        import io, sys
        print(1, "a", None, sep="-", end="!\\n", flush=True)
        buffer = io.StringIO()
        print("to buffer", file=buffer)
        print("to stdout", file=sys.stdout)
        print(*range(3), [1], {"a": (2,)})
        errors = []
        for values, options in (("v", {"sep": 5}), ("v", {"end": 5}), ("v", {"file": 3}), (("early", 10**5000), {})):
            try: print(*values, **options)
            except Exception as error: errors.append((type(error).__name__, str(error)))
        print(10**5000 > 1, print.__doc__)
        result = buffer.getvalue(), errors
    """)


def test_fstrings_take_every_conversion_and_specification(same):
    """!r !s !a, nested specifications, =, quotes, lambdas, walrus."""
    same('''
        class A:
            _p = 3
            def __format__(self, spec): return f"<{spec}>"
            def __repr__(self): return "A()"
        a, width, x, d = A(), 8, 3.14159, {"k": 1}
        def f(self): return f"{self._p:>{width}} {self!r} {self:abc}"
        result = (f"{x:.2f} {x:>{width}.1f} {a!r} {a:abc} {'ü'!a} {x=} {d['k']} {(y := 5)} {y} {{}} {a!s:>5}", f(a),
                  f"""{
                  x:e}""")
    ''')


def test_format_methods_behave_the_same(same):
    """Literal and variable templates, attributes, items, nesting, errors."""
    same("""
        class A:
            x = {"k": [1, 2]}
            _p = 5
            def __init__(self): self.y = 2
        a = A()
        def go(t, *args, **kw):
            try: return t.format(*args, **kw)
            except Exception as e: return type(e).__name__, str(e)
        templates = ["{} {}", "{0} {1} {0}", "{a.y} {a.x[k][1]}", "{:>{}}", "{!r:>5}", "{{}} {0!s}", "{", "{0} {}",
                     "{9}", "{missing}", "{a._p}", "{0:{1}{2}}", "{a.y:{b}}"]
        result = [go(t, "v", 3, "d", a=a, b="03d") for t in templates]
        result += ["{x}".format_map({"x": 1}), str.format("{}-{}", 1, 2), "a".__format__(">3"), format(3.5, ".2f"),
                   "%s %5.2f %(k)s" % {"k": 1} if False else "%s %5.2f" % (1, 2.0)]
    """)


@pytest.mark.parametrize(
    "template",
    [
        "{0.__class__.__init__.__globals__}",
        "{0.__globals__}",
        "{0.gi_frame.f_globals}",
        "{0.__class__.__mro__[1].__subclasses__}",
        "{0:{0.__globals__}}",
        "{0._sys}",
        "{0!r:{1.__globals__}}",
    ],
)
def test_templates_read_no_inner_attributes(session, template):
    """Attribute access written as data, by every method that formats."""
    session.namespace["t"] = template
    for call in (
        f"{template!r}.format(print, print)",
        "t.format(print, print)",
        "str.format(t, print, print)",
        "getattr(t, 'format')(print, print)",
        "t.format_map({'0': print})",
        "import string; string.Formatter().format(t, print, print)",
        "import string; string.Formatter().vformat(t, (print, print), {})",
        "list(map(t.format, [print], [print]))",
        "class S(str): pass\nS(t).format(print, print)",
        "type(t).format(t, print, print)",
        "import operator; operator.methodcaller('format', print, print)(t)",
        "import operator; operator.attrgetter('format')(t)(print, print)",
        "import functools; functools.partial(str.format, t)(print, print)",
        "super(type('S', (str,), {}), type('S', (str,), {})(t)).format(print, print)",
    ):
        with pytest.raises((AttributeError, KeyError, ValueError, IndexError, TypeError)):
            session.run(call)


def test_string_formatter_can_be_subclassed(same):
    """The extension points of string.Formatter."""
    same("""
        import string
        class Default(string.Formatter):
            def get_value(self, key, args, kwargs):
                return kwargs.get(key, f"<{key}>") if isinstance(key, str) else super().get_value(key, args, kwargs)
            def format_field(self, value, spec): return super().format_field(value, spec).upper()
        result = (Default().format("{a} {b} {0:>4}", "x", a="y"), string.Formatter().format("{:d}", 3),
                  string.Template("$a ${b}").substitute(a=1, b=2))
    """)


def test_a_stream_that_code_puts_in_place_is_the_one_that_it_finds_there(session):
    """Another one stands before it, for what writes in the midst of the wall's own work."""
    session.run("""
        import contextlib, sys
        class Tee:
            def __init__(self): self.texts = []
            def write(self, text): self.texts.append(text)
            def flush(self): self.texts.append('flushed')
        tee, before = Tee(), sys.stdout
        sys.stdout = tee
        same = sys.stdout is tee
        print('one', flush=True)
        with contextlib.redirect_stdout(tee): print('two')
        sys.stdout = before
    """)
    assert session.namespace["same"]
    assert session.namespace["tee"].texts == ["one", "\n", "flushed", "two", "\n"]


def test_warnings_are_shown_and_caught_as_ever(session):
    """By the public functions and the context manager, with an own category that has no metaclass."""
    session.run("""
        import warnings
        class Mine(UserWarning): pass
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter('always', Mine)
            warnings.warn('one', Mine)
        with warnings.catch_warnings():
            warnings.filterwarnings('error', 'two', category=Mine)
            try: warnings.warn('two', Mine)
            except Mine as error: found = str(error)
    """)
    assert [str(entry.message) for entry in session.namespace["caught"]] == ["one"]
    assert session.namespace["found"] == "two"
