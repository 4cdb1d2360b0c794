"""Dates under the language wall: no method reads memory that is not the object's."""

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
