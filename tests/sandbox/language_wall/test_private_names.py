"""Names with one underscore: the session's own are native, those of libraries stay private."""

import pytest


def test_private_attributes_of_own_objects_work(same):
    """``self._x`` is ordinary Python."""
    same("""
        class Stack:
            _created = 0
            def __init__(self): self._items = []; self.__secret = 1; Stack._created += 1
            def push(self, x): self._items.append(x); return self
            def _peek(self): return self._items[-1]
            def both(self, other): return self._items + other._items, any(self._peek() for _ in range(2))
            def mangled(self): self.__secret += 1; return self.__secret
            @classmethod
            def made(cls): return cls._created
            @property
            def size(self): return len(self._items)
        class Sub(Stack):
            def _peek(self): return ("sub", super()._peek())
        a, b = Stack().push(1), Sub().push(2).push(3)
        result = (a.both(b), b._peek(), b.mangled(), b._Stack__secret, Stack.made(), b.size, a._peek())
    """)


def test_attributes_are_targets_of_loops_and_comprehensions(same):
    """Also of a name that other frames bind, which is held in no temporary there."""
    same("""
        class Own: _last = None
        def of(own):
            def swap():
                nonlocal own
                own = Own()
            first = [own._last for own._last in range(3)], {1 for own._last in "ab"}, [*(2 for own._last in "cd")]
            swap()
            for own._last in "ef": pass
            return first, own._last
        result = of(Own())
    """)


def test_private_names_of_variables_and_functions_work(same):
    """``_x`` as a variable, a function, a parameter, a module-level name."""
    same("""
        _total, __hidden = 3, 4
        def _helper(_n, *_rest, _k=2): return _n + _k + len(_rest)
        _helper._calls = 1
        _helper._calls += 1
        result = (_helper(1, 2), _total, __hidden, _helper._calls, [_ for _ in range(2)])
    """)


def test_a_check_made_once_does_not_outlive_a_new_binding(session):
    """A parameter that is bound again is checked at each use, whatever form the binding takes."""
    forms = {
        "assignment": "self = foreign",
        "walrus": "(self := foreign)",
        "walrus in a comprehension": "[(self := foreign) for _ in range(1)]",
        "for": "for self in [foreign]: pass",
        "with": "with manager(foreign) as self: pass",
        "unpacking": "self, *_ = [foreign]",
        "augmented": "self = Swap(); self += foreign",
        "match": "match foreign:\n            case self: pass",
        "match star": "match [foreign]:\n            case [*self]: self = self[0]",
        "match rest": "match {'a': 1}:\n            case {**self}: self = foreign",
        "except": (
            "try: raise Carrier()\n        except Carrier as self:\n            loot(self._private)\n            return"
        ),
        "function": "def self(): pass\n        self = foreign",
        "class": "class self: pass\n        self = foreign",
        "import": "import queue as self\n        self = foreign",
        "delete": "del self; self = foreign",
        "nonlocal": "def inner():\n            nonlocal self\n            self = foreign\n        inner()",
        "annotated": "self: object = foreign",
    }
    for name, binding in forms.items():
        source = f"""
import threading, contextlib
foreign = threading.Thread(target=print)
class Swap:
    def __iadd__(self, other): return other
class Carrier(threading.BrokenBarrierError): pass
manager = contextlib.nullcontext
seen = []
loot = seen.append
class Own:
    _private = 1
    def steal(self):
        self._private
        {binding}
        seen.append(self._started)
try: Own().steal()
except AttributeError as error: seen.append(str(error))
result = seen
"""
        result = session.value(source)
        assert all(isinstance(item, str | int) for item in result), (name, result)


def test_a_local_checked_at_its_assignment_is_checked_again_when_bound_again(session):
    """The flag of a local variable follows its only assignment, loop or no loop."""
    result = session.value("""
        import threading
        foreign = threading.Thread(target=print)
        class Own: pass
        def steal(values):
            got = []
            for value in values:
                item = value
                for _ in range(2):
                    try: item._target = 1; got.append("stored")
                    except AttributeError: got.append("refused")
            return got
        result = steal([Own(), foreign, Own(), foreign])
    """)
    assert result == ["stored", "stored", "refused", "refused"] * 2


FORMS = {
    "plain": "return self._x",
    "with a docstring": "'text'; self._x += 1; return self._x, self.form.__doc__",
    "only after a docstring": "'''text'''\nreturn self._x, self.form.__doc__",
    "a generator": "return list((lambda: (yield self._x))()) + [*(self._x for _ in 'ab')]",
    "closures": "def inner(by=self._x):\n    return self._x + by\nreturn inner(), (lambda: self._x)()",
    "a class": "class Inner:\n    y = self._x\n    def z(me): return self._x\nreturn Inner().z()",
    "comprehensions": "return [self._x + i for i in range(self._x)], {self._x: [self._x for _ in 'a']}",
    "finally": "try: return self._x\nfinally: self._x = 9",
    "stores": "self._y = [self._x]; self._y += [2]; y = self._y; del self._y\nreturn y, hasattr(self, '_y')",
    "another object": "other = Own(self._x)\nfor _ in 'ab': other._x += self._x\nreturn other._x",
    "another argument": "return (lambda other: (self._x, other._x))(Own(5))",
    "a global": "global counted\ncounted = self._x\nreturn counted",
    "a nonlocal": "n = 0\ndef f():\n    nonlocal n; n += self._x\nf()\nreturn n",
    "a walrus in a generator": "got = list(y for _ in 'a' if (y := Own(self._x)))[0]\nreturn got._x, y._x",
    "long": "total = 0\n" + "total += self._x * 2\n" * 80 + "return total",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("base", ["object", "threading.Thread"], ids=["own", "of a library's"])
def test_a_body_does_the_same_whosever_the_object_is(same, base: str, form: str) -> None:
    """An object of a class that derives from a library's is checked at each access, the session's own once."""
    body = FORMS[form].replace("\n", "\n" + 8 * " ")
    same(f"""
import threading
class Own:
    def __init__(self, x): self._x = x
class Form({base}):
    _x = 3
    def form(self):
        {body}
one = Form()
result = one.form(), one._x
""")


@pytest.mark.parametrize("form", FORMS)
def test_a_body_reads_nothing_of_a_library_in_whatever_form(session, form: str) -> None:
    """The private attribute of a library's class stays refused where the body is checked as a whole."""
    body = FORMS[form].replace("_x", "_bootstrap").replace("\n", "\n" + 8 * " ")
    with pytest.raises(AttributeError, match="'_bootstrap' is private to objects of 'Form'"):
        session.run(f"""
import threading
class Own:
    def __init__(self, x): self._bootstrap = x
class Form(threading.Thread):
    def form(self):
        {body}
Form(target=print).form()
""")


def test_functions_in_functions_compile_in_their_number(session) -> None:
    """A body that is written twice holds bodies that are: it doubles while it is short, and no further."""
    depth = 40
    lines = [f"{'    ' * level}def f{level}(p{level}, inner=None):" for level in range(depth)]
    lines.append("    " * depth + "return " + " + ".join(f"p{level}._x" for level in range(depth)))
    calls = [f"{'    ' * level}return f{level}(p{level - 1})" for level in range(depth - 1, 0, -1)]
    source = "\n".join(["class Own: _x = 1", *lines, *calls, "result = f0(Own())"])
    assert session.value(source) == depth


def test_names_mangled_in_two_classes_are_not_mixed_up(session):
    """``__x`` in an inner class is another variable than ``__x`` outside: the outer check says nothing of it."""
    with pytest.raises(AttributeError):
        session.run("""
            import threading
            _Inner__it = threading.Thread(target=print)
            class Outer:
                def method(self, __it):
                    __it._own = 1
                    class Inner:
                        def steal(self): return __it._target
                    return Inner().steal()
            class Own: pass
            loot = Outer().method(Own())
        """)


def test_private_attributes_of_library_objects_are_refused(session):
    """The message says whose attribute it is and what to do."""
    with pytest.raises(AttributeError, match=r"'_target' is private to objects of 'Thread': use its public"):
        session.run("import threading; threading.Thread(target=print)._target")
    assert session.value("import threading; result = getattr(threading.Thread(), '_target', 'no')") == "no"
    assert session.value("result = hasattr(threading.Thread(), '_target')") is False


def test_private_attributes_of_modules_and_library_classes_are_refused(session):
    """``module._x`` and ``LibraryClass._x``."""
    for source in (
        "import random; random._inst",
        "import json; json.JSONEncoder._x",
        "import enum; enum.Enum._x",
    ):
        with pytest.raises(AttributeError):
            session.run(source)


def test_a_subclass_of_a_library_class_keeps_its_own_private_names(same):
    """What the session's class defines is its own, though its base is a library's."""
    same("""
        import threading
        class Worker(threading.Thread):
            def __init__(self): super().__init__(); self._answer = None
            def run(self): self._answer = self._work()
            def _work(self): return 42
        worker = Worker(); worker.start(); worker.join()
        result = worker._answer
    """)


def test_a_subclass_of_a_library_class_does_not_open_the_bases_private_methods(session):
    """What the library's class defines stays private."""
    with pytest.raises(AttributeError):
        session.run("""
            import threading
            class Worker(threading.Thread):
                def steal(self): return self._bootstrap_inner
            Worker().steal()
        """)


def test_names_of_library_methods_are_ordinary_on_what_the_session_defines(same) -> None:
    """A class derived from a library's has its own methods and values under names that are guarded on the library's."""
    same(
        """
        import copy, functools, io, threading
        class Worker(threading.Thread):
            def __init__(self):
                super().__init__()
                self.env, self.loader, self.obj, self.query = "e", "l", "o", "q"
        class Source(io.BytesIO):
            def readinto(self, buffer): return super().readinto(buffer) + 1
        class once(functools.cached_property): pass
        class read(property):
            def __get__(self, obj, cls=None): return super().__get__(cls)
        class Point:
            twice = once(lambda self: 2)
            name = read(lambda cls: cls.__name__)
        worker, buffer = Worker(), bytearray(2)
        print(worker.env, worker.loader, worker.obj, worker.query)
        print(Source(b"ab").readinto(buffer), io.BytesIO(b"cd").readinto(buffer), buffer)
        print(Point().twice, Point.name, copy.copy(Point()).twice, Point().__getstate__())
        """
    )
