# ruff: noqa: E501 - cells are shown as they are run
"""Imports: the allow-list, sanitised copies, every form of the statement."""

import sys
import types

import pytest

from rlm_sandbox.errors import CellError, PolicyViolation
from rlm_sandbox.language_wall.modules.tables import ADMITTED_BY
from rlm_sandbox.policy import load_policy, policy_names


def test_every_form_of_import_works(same):
    """Plain, dotted, renamed, from, star, in functions, of submodules."""
    same("""
        import math, os.path, collections.abc as cabc, xml.etree.ElementTree as ET, urllib.parse
        from os import path as p, sep
        from collections import OrderedDict as OD, abc
        from json import *
        from concurrent.futures import ThreadPoolExecutor
        import concurrent.futures
        from email.mime.text import MIMEText
        from sys import version_info as v, stdout
        def late():
            import decimal
            from fractions import Fraction
            return decimal.Decimal("1.1") + 1, Fraction(1, 3)
        result = (math.sqrt(4), os.path.join("a", "b"), issubclass(list, cabc.Sequence), ET.fromstring("<a b='1'/>").attrib,
                  urllib.parse.quote("a b"), p.basename("x/y"), sep, OD(a=1), abc.Mapping is cabc.Mapping, dumps([1]),
                  late(), v[0], concurrent.futures.ThreadPoolExecutor is ThreadPoolExecutor, math.__name__,
                  __import__("math").floor(2.5), MIMEText("x").get_content_type())
        with ThreadPoolExecutor(2) as pool: print(list(pool.map(lambda x: x * 2, range(3))))
    """)


def test_everything_on_the_default_list_can_be_imported_and_is_a_copy(session):
    """Each module of the policy gives a copy, never the module."""
    for name in session.wall.policy.language.imports:
        session.run(f"import {name}\nresult = __import__({name!r}, fromlist=['x'])")
        copy = session.namespace["result"]
        assert isinstance(copy, types.ModuleType)
        assert copy is not sys.modules.get(name)


@pytest.mark.parametrize("name", ["subprocess", "socket", "ctypes", "runpy", "pickle", "_thread", "builtins"])
def test_a_module_that_is_not_listed_is_refused_with_the_field_that_lists_it(session, name):
    """The message says which policy field decides."""
    for source in (
        f"import {name}",
        f"from {name} import x",
        f"import {name} as y",
        f"__import__({name!r})",
        f"import json, {name}",
    ):
        with pytest.raises(ModuleNotFoundError, match=r"language\.imports"):
            session.run(source)


def test_a_module_that_does_not_exist_is_reported_as_such(session):
    """As in plain Python."""
    with pytest.raises(ModuleNotFoundError, match="No module named 'nowhere'"):
        session.run("import nowhere.at.all")


def test_an_admitted_package_that_is_not_installed_says_where_to_install_it(make_session):
    """The package may well be installed in the user's own environment."""
    session = make_session(imports=("not_there", "json"))
    for source in ("import not_there", "from not_there.sub import x"):
        with pytest.raises(
            ModuleNotFoundError, match=r"^No module named 'not_there': .* not installed in rlm-kernel's"
        ):
            session.run(source)
    with pytest.raises(ImportError, match=r"language\.imports"):
        session.run("import json.nothing")


def test_a_name_that_the_copy_lacks_is_not_fetched_from_the_real_module(session):
    """CPython looks for ``module.name`` in sys.modules when the attribute is missing."""
    for source in (
        "from logging import config",
        "from concurrent.futures import process",
        "from xml import sax",
        "import logging.config as c",
        "import xml.sax as s",
        "from os import system",
        "import concurrent.futures.process as q",
    ):
        with pytest.raises(ImportError):
            session.run(source)
    assert not hasattr(session.value("import logging as result"), "config")


def test_renaming_a_copy_does_not_lead_to_another_module(session):
    """The fallback builds its name from ``__name__``, which the session may change."""
    with pytest.raises(ImportError):
        session.run("import json\njson.__name__ = 'os'\nfrom json import path")
    session.run("json.__name__ = 'json'")


def test_the_environment_is_the_sessions_own(session) -> None:
    """It begins empty, and `os.getenv` reads what a cell has stored."""
    code = "import os\nresult = [len(os.environ), os.getenv('HOME', 'none')]\nos.environ['Q'] = '1'\nresult += [os.getenv('Q')]"
    assert session.value(code) == [0, "none", "1"]
    session.run("del os.environ['Q']")


def test_a_key_of_a_class_of_the_session_is_not_asked_what_it_equals(session) -> None:
    """As the real one, which takes text alone."""
    with pytest.raises(TypeError, match="str expected, not Key"):
        session.run("class Key(str):\n    pass\nimport os\nos.getenv(Key('Q'))")


@pytest.mark.parametrize(
    "expression",
    [
        "json.decoder.scanner",
        "json.codecs",
        "random._os",
        "os.system",
        "os.environ['HOME']",
        "sys._getframe",
        "sys.modules",
        "pathlib.os",
        "tempfile._os",
        "io.FileIO",
        "os.posix",
        "shutil.os",
        "threading._start_new_thread",
        "re.copyreg",
        "functools.get_cache_token",
        "contextlib.sys",
        "logging.os",
        "traceback.sys",
        "glob.os",
        "typing.sys",
        "dataclasses.sys",
        "warnings.sys",
        "asyncio.subprocess",
        "asyncio.get_event_loop",
        "inspect.currentframe",
        "argparse._sys",
        "os.fork",
        "os.kill",
        "os.open",
        "string._string",
    ],
)
def test_copies_hold_no_other_modules_and_no_dangerous_functions(session, expression):
    """What walks out of a module in plain Python is not there."""
    names = (
        "json random os sys pathlib tempfile io shutil threading re functools contextlib logging traceback glob "
        "typing dataclasses warnings asyncio inspect types argparse string"
    ).split()
    session.run("import " + ", ".join(names))
    with pytest.raises((AttributeError, KeyError)):
        session.run(f"loot = {expression}\nif loot == {{}}: raise KeyError")


def test_relative_and_private_imports_are_refused(session):
    """At compile time, with a reason."""
    assert "not part of a package" in session.refusal("from . import x").reason
    assert "private" in session.refusal("from random import _os").reason
    assert "private" in session.refusal("from os import __builtins__").reason


def test_a_star_admits_everything_but_what_defeats_the_wall(make_session):
    """``imports: ["*"]``."""
    wide = make_session(imports=("*",))
    wide.run("import sqlite3, unittest, pprint, html.parser, xml.dom.minidom")
    for name in ("ctypes", "gc", "importlib", "subprocess", "pickle"):
        with pytest.raises(ImportError, match="must be named on the allow-list"):
            wide.run(f"import {name}")
    make_session(imports=("pickle",)).run("import pickle")


def test_the_package_of_a_listed_submodule_gives_only_the_way_to_it(make_session):
    """``imports: ["xml.etree.ElementTree"]`` does not admit the rest of xml."""
    narrow = make_session(imports=("xml.etree.ElementTree", "os.path"))
    narrow.run("import xml.etree.ElementTree as ET, os.path\nET.fromstring('<a/>'); os.path.join('a', 'b')")
    for source in ("import os; os.listdir", "import xml.dom", "from os import listdir", "import json"):
        with pytest.raises((ImportError, AttributeError)):
            narrow.run(source)


def test_redirecting_stdout_works_and_ends_with_the_cell(session):
    """``sys.stdout = buffer`` as in plain Python; the host's stream is back afterwards."""
    before = sys.stdout
    assert (
        session.value("""
        import sys, io
        buffer = io.StringIO()
        sys.stdout = buffer
        print("caught")
        result = buffer.getvalue()
    """)
        == "caught\n"
    )
    assert sys.stdout is before


def test_the_sessions_logging_is_its_own(session):
    """No handler or logger of the host is reachable, and the host sees none of the session's."""
    import logging

    session.run("""
        import logging, io
        out = io.StringIO()
        logging.basicConfig(stream=out, level=logging.INFO, format="%(levelname)s %(message)s")
        logging.getLogger("rlm").info("hello %d", 3)
        result = out.getvalue()
    """)
    assert session.namespace["result"] == "INFO hello 3\n"
    assert session.value("result = logging.getLogger()") is not logging.getLogger()


def test_the_policies_that_admit_a_package_are_those_of_the_files():
    """The wall's own table says what the packaged policies say; what only `trusted` admits is in none of them."""
    admitted: dict[str, set[str]] = {}
    for name in policy_names():
        for module in load_policy(name).language.imports:
            admitted.setdefault(module.partition(".")[0], set()).add(name)
    beyond = {module: names for module, names in admitted.items() if "default" not in names and module != "*"}
    assert {module: set(names) for module, names in ADMITTED_BY.items()} == beyond


def test_import_module_imports_what_a_statement_may(same, session):
    """Admitted modules by a name that is known when the program runs."""
    same("""
        import importlib
        from importlib import import_module
        path = import_module("os.path")
        try: import_module("nowhere.at.all")
        except ModuleNotFoundError as error: print(error)
        result = [importlib.import_module(name).__name__ for name in ("math", "json.decoder")], path.join("a", "b")
    """)
    assert session.value("import json; result = import_module('json') is json")


@pytest.mark.parametrize(
    "source",
    [
        "importlib.import_module('subprocess')",
        "importlib.import_module('importlib.util')",
        "importlib.import_module('os').system",
        "importlib.import_module('.x', 'os')",
        "importlib.import_module('concurrent.futures.process')",
        "importlib.import_module('_posixsubprocess')",
        "importlib.import_module(Name('json'))",
        "importlib.import_module.__globals__",
        "importlib.reload",
        "importlib.util",
        "importlib.__import__",
        "importlib.machinery",
        "importlib.invalidate_caches",
        "importlib.sys",
    ],
)
def test_import_module_is_no_way_to_another_module(session, source):
    """It decides by the exact text, as the statement does, and hands out the copy; the rest of importlib is not there."""
    session.run("""
        import importlib
        class Name(str):
            def startswith(self, *_): return False
            def split(self, *_, **__): return ["json"]
            def __eq__(self, other): return True
            def __hash__(self): return hash("subprocess")
    """)
    with pytest.raises((ImportError, AttributeError, TypeError, PolicyViolation)):
        session.run(source)


def test_typing_extensions_is_the_typing_of_the_session(session):
    """Its own classes and functions would evaluate text, make classes and look into frames their own way."""
    session.run("""
        import typing, typing_extensions
        from typing_extensions import (Annotated, Literal, Protocol, ReadOnly, Self, TypedDict, TypeIs, get_type_hints,
            override, runtime_checkable)
        class Point(TypedDict): x: Annotated[int, "column"]
        class Shape:
            @override
            def area(self) -> "int": return 3
        def is_int(value) -> TypeIs[int]: return True
        shared = [typing_extensions.Any is typing.Any, get_type_hints is typing.get_type_hints, TypedDict is typing.TypedDict]
        result = Point(x=1), get_type_hints(Shape.area), shared, Shape().area()
    """)
    assert session.namespace["result"] == ({"x": 1}, {"return": int}, [True] * 3, 3)
    for source in ("typing_extensions.sys", "typing_extensions.get_overloads", "typing_extensions.TypeIs.mark = 1",
                   "typing_extensions._SpecialForm", "typing_extensions.ForwardRef", "TypeIs._getitem",
                   "typing_extensions.inspect", "typing_extensions.evaluate_forward_ref"):  # fmt: skip
        with pytest.raises((AttributeError, PolicyViolation)):
            session.run(source)
    with pytest.raises(CellError):
        session.run("get_type_hints(type('C', (), {'__annotations__': {'x': 'open.__globals__'}}))")


def test_a_refused_module_says_what_to_write_in_its_place(session):
    """Where no packaged policy with a language wall admits it."""
    for name, way in (("unittest", "with assert"), ("unittest.mock", "with assert"), ("doctest", "assert statements")):
        with pytest.raises(ModuleNotFoundError, match=rf"language\.imports.*{way}"):
            session.run(f"import {name}")


def test_a_refused_package_is_told_with_the_policies_that_admit_it(session):
    """And with what to type; where none does, with the other ways on."""
    with pytest.raises(ModuleNotFoundError, match=r"\(data, tables, teaching\).*rlm-kernel run --policy data"):
        session.run("import numpy.linalg")
    with pytest.raises(ModuleNotFoundError, match="a policy of your own that admits it"):
        session.run("import termios")
