"""try, except, except*, finally, chaining, notes, tracebacks."""

import pytest


def test_exceptions_behave_the_same(same):
    """Order of handlers, else and finally, chaining, custom classes, notes, sys.exc_info."""
    same("""
        import sys, traceback
        class Mine(ValueError):
            def __init__(self, code): super().__init__(f"code {code}"); self._code = code; self.obj = code
        def f(n):
            try:
                try:
                    if n == 0: raise Mine(7)
                    if n == 1: raise KeyError("k") from None
                    return "returned"
                except Mine as e:
                    e.add_note("note")
                    raise RuntimeError("wrapped") from e
                else: print("else")
                finally: print("finally", n)
            except (RuntimeError, KeyError) as e:
                cause = e.__cause__
                return type(e).__name__, cause and (cause._code, cause.obj, cause.__notes__), sys.exc_info()[0].__name__
        print(traceback.format_exception_only(Mine(1)))
        result = [f(0), f(1), f(2)]
    """)


def test_exception_groups_are_split_by_type(same):
    """except* admits matching parts and hands on the rest."""
    same("""
        def f(*errors):
            out = []
            try:
                try: raise ExceptionGroup("many", list(errors))
                except* ValueError as g: out.append(("value", [str(e) for e in g.exceptions]))
                except* (KeyError, OSError) as g: out.append(("other", len(g.exceptions)))
                else: out.append("none")
                finally: out.append("end")
            except BaseException as rest: out.append(repr(rest))
            return out
        def single():
            try: raise ValueError("plain")
            except* ValueError as g: return_ = g
            return return_
        result = (f(ValueError(1), KeyError(2)), f(ValueError(1), TypeError(3), ValueError(4)), repr(single()),
                  f(ExceptionGroup("inner", [ValueError(5), OSError(6)])))
    """)


def test_a_group_that_redefines_split_is_not_split_by_an_old_cpython(session):
    """CVE-2025-22153: before 3.12.9 and 3.13.2, CPython trusts what ``split`` returns."""
    source = """
        class Evil(ExceptionGroup):
            def split(self, kind): return 5
        try: raise Evil("x", [ValueError()])
        except* ValueError: pass
    """
    with pytest.raises(TypeError, match="split"):
        session.run(source)
    with pytest.raises((TypeError, AttributeError)):
        session.run("""
            class Group(ExceptionGroup): pass
            g = Group("x", [ValueError()])
            g.split = lambda kind: 5
            try: raise g
            except* ValueError: pass
        """)


def test_the_object_of_an_attribute_error_is_not_handed_out(session):
    """``error.obj`` is the object on which a library did not find its attribute."""
    result = session.value("""
        import threading
        try: threading.Thread().nothing
        except AttributeError as e: result = getattr(e, "obj", "held")
    """)
    assert result == "held"
