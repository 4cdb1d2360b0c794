"""Dates under the language wall: no method reads memory that is not the object's."""

import json
import sys

import pytest


def test_a_date_is_replaced_by_its_own_class(session):
    """What programs write works as ever."""
    code = "import datetime as d\nx = d.date(2020, 1, 2).replace(year=2021), d.datetime(2020, 1, 2, 3).replace(hour=4)"
    session.run(code)
    assert str(session.namespace["x"][0]) == "2021-01-02"
    assert str(session.namespace["x"][1]) == "2020-01-02 04:00:00"


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="CPython makes it by the class of the object itself")
@pytest.mark.parametrize("call", ["d.date.replace(moment)", "super(d.datetime, moment).replace(day=2)"])
def test_a_datetime_is_not_replaced_as_a_date(session, call):
    """It would take what stood in its memory for its time zone."""
    with pytest.raises(TypeError, match=r"write moment\.replace"):
        session.run(f"import datetime as d\nmoment = d.datetime(2020, 1, 1)\nx = {call}")


_MAKES_OTHERS = """
    import datetime as d, types
    class Moment(d.datetime):
        def __new__(cls, *args, **options):
            return other if made else d.datetime.__new__(cls, *args, **options)
    class Names(types.SimpleNamespace):
        def __new__(cls, **options):
            return other if made else types.SimpleNamespace.__new__(cls)
    made, other = False, bytearray(b"a" * 200)
    moment = Moment(2020, 1, 1, tzinfo=d.timezone(d.timedelta(hours=1)))
    names = Names(planted=1)
"""


def test_a_moment_is_moved_by_parts(session):
    """C code would write the time zone into whatever the class has made."""
    session.run(_MAKES_OTHERS)
    session.run("""
        result = repr(moment.astimezone(d.timezone.utc)), str(d.datetime(2020, 1, 1).astimezone(d.timezone.utc))[:4]
        made = True
        moment.astimezone(d.timezone.utc)
    """)
    assert session.namespace["result"][0] == "Moment(2019, 12, 31, 23, 0, tzinfo=datetime.timezone.utc)"
    assert session.namespace["result"][1] in ("2019", "2020")
    assert session.namespace["other"] == b"a" * 200


@pytest.mark.skipif(sys.version_info < (3, 13), reason="namespaces have `__replace__` since CPython 3.13")
def test_a_namespace_is_replaced_by_a_namespace(session):
    """C code would write into the globals of a function that the class has made."""
    session.run(_MAKES_OTHERS)
    session.run("import copy, json; result = repr(copy.replace(names, b=2)); made, other = True, json.dumps")
    with pytest.raises(TypeError):
        session.run("copy.replace(names)")
    assert session.namespace["result"] == "Names(planted=1, b=2)"
    assert not hasattr(json, "planted")


def test_the_class_of_time_zones_is_final(session):
    """C code writes into what its own cache gives, which a class of the session could replace."""
    with pytest.raises(TypeError, match="may not be subclassed"):
        session.run("import zoneinfo\nclass Zone(zoneinfo.ZoneInfo): pass")
