"""Assignments to ``__class__`` and ``__dict__``: on objects of the session's own classes, and on nothing else."""

import pytest

from rlm_sandbox.errors import PolicyViolation


def test_objects_of_own_classes_change_class_and_namespace(same):
    """Dicts whose keys are attributes, objects that share their state, states as classes."""
    same("""
        import copy
        class AttrDict(dict):
            def __init__(self, *args, **named):
                super().__init__(*args, **named)
                self.__dict__ = self
        class Borg:
            shared = {}
            def __init__(self): self.__dict__ = self.shared
        class Closed:
            def push(self): self.__class__ = Open; return "opens"
        class Open:
            def push(self): self.__class__ = Closed; return "closes"
        class Last:
            name = "last"
        def turn(obj, cls):
            obj._kept = 1
            obj.__class__, obj.__dict__ = cls, {**obj.__dict__, "more": 2}
            return obj._kept, obj.more, type(obj).__name__
        config = AttrDict(a=1); config.b = 2; config["c"] = 3
        twin = copy.copy(config); twin.a = 9
        Borg().x = 5
        valve = Closed()
        for valve.__class__ in (Closed, Open): pass
        pushed = valve.push(), valve.push(), turn(valve, Last), isinstance(valve, Last)
        result = config, config.c, config["b"], twin, twin["a"], Borg().x, pushed
        try: valve.__dict__ = 3
        except (TypeError, AttributeError): print("no dict")
        try: valve.__class__ = type("Slots", (), {"__slots__": ("x",)})
        except TypeError as error: print(error)
    """)


SETUP = """
    import argparse, collections, enum, functools, json, re, types
    class Plain: pass
    class Other: pass
    class Meta(type): pass
    class WithMeta(metaclass=Meta): pass
    class Text(str): pass
    class Group(ExceptionGroup):
        def split(self, *_): return 1, 2
    class Calm(ExceptionGroup): pass
    class Error(Exception): pass
    class Failure(Exception): pass
    class Names(argparse.Namespace): pass
    class More(argparse.Namespace): pass
    class Color(enum.Enum): RED = 1
    class Shade(enum.Enum): DARK = 1
    class Stealer:
        def __radd__(self, other): stolen.append(other); return Other
        def __ror__(self, other): stolen.append(other); return {}
    stolen = []
    def function(): pass
    obj = Plain()
"""


@pytest.mark.parametrize(
    "source",
    [
        "obj.__class__ = int",
        "obj.__class__ = dict",
        "obj.__class__ = type",
        "obj.__class__ = WithMeta",
        "obj.__class__ = Text",
        "obj.__class__ = Names",
        "obj.__class__ = re.Pattern",
        "obj.__class__ = types.SimpleNamespace",
        "WithMeta().__class__ = Plain",
        "Text('x').__class__ = Plain",
        "Names().__class__ = More",
        "More().__class__ = Names",
        "Error().__class__ = Failure",
        "Calm('x', [Error()]).__class__ = Group",
        "Color.RED.__class__ = Shade",
        "Plain.__class__ = Meta",
        "Meta.__class__ = type",
        "function.__class__ = Plain",
        "json.__class__ = Plain",
        "re.compile('x').__class__ = Plain",
        "super(Plain, obj).__class__ = Other",
        "setattr(obj, '__class__', Other)",
        "object.__setattr__(obj, '__class__', Other)",
        "super(Plain, obj).__setattr__('__class__', Other)",
        "obj.__class__ += Stealer()",
        "obj.__dict__ |= Stealer()",
        "del obj.__class__",
        "del obj.__dict__",
        "function.__dict__ = {'__wrapped__': json.loads}",
        "Plain.__dict__ = {}",
        "json.__dict__ = {}",
        "Names().__dict__ = {'_x': 1}",
        "functools.partial(print).__dict__ = {}",
        "types.SimpleNamespace().__dict__ = {}",
        "setattr(obj, '__dict__', {})",
        "object.__setattr__(obj, '__dict__', {})",
        "obj.__dict__ = collections.ChainMap()",
        "obj.__dict__ = vars(Plain)",
        "obj.__dict__ = argparse.Namespace()",
        "class Bad:\n    __class__ = Plain",
        "class Bad:\n    @property\n    def __dict__(self): return {}",
    ],
)
def test_nothing_of_a_library_and_no_class_changes(session, source):
    """Nor what code in C trusts; and nobody gets hold of what makes the assignment."""
    session.run(SETUP)
    with pytest.raises((AttributeError, TypeError, PolicyViolation)):
        session.run(source)
    assert session.value("result = (stolen, type(obj) is Plain, vars(obj))") == ([], True, {})


def test_the_rules_hold_for_an_object_that_has_changed(session):
    """A check that was made once for a variable is true of the class that the object has now."""
    session.run(SETUP)
    session.run("""
        class Finder:
            def __getattr__(self, name): return "found " + name
        def read(value, cls):
            first = value._x
            value.__class__ = cls
            return first, value._y, value.__class__ is cls
        obj._x = 1
        result = read(obj, Finder)
    """)
    assert session.namespace["result"] == (1, "found _y", True)
    with pytest.raises(PolicyViolation):
        session.run("obj.__class__ = Other\nobj.__globals__")
    with pytest.raises(AttributeError):
        session.run("obj.__dict__ = {'inner': json.loads}\nobj.inner._x")
