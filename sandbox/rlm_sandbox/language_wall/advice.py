"""The texts of refusals: the reason, and how to write the same thing so that it is allowed."""

from __future__ import annotations

from typing import Final, NamedTuple


class Refusal(NamedTuple):
    """A reason and the alternative; ``instead`` is empty when there is none. ``rule``: see ``CellError``."""

    reason: str
    instead: str = ""
    rule: str = ""


_BLOCKED_BUILTINS: Final = {
    "eval": "Read data with `json.loads` or `ast.literal_eval`; write a calculation as ordinary code",
    "exec": "Put the code itself into a cell: cells share their variables",
    "compile": "Put the code itself into a cell; for regular expressions use `re.compile`",
    "input": "Nobody can answer: assign the value in the cell, or load it as a context",
    "globals": "Use the variable by its name, or keep your values in a dict",
    "locals": "Use the variable by its name; for text write `f'{x=}'` or build a dict",
    "open": "Load the text as a context and read it from its variable",
    "breakpoint": "Use `print`, or run the statements in separate cells",
}

_NAMES: Final = {
    "__build_class__": "Write `class Name: ...`",
    "__classdict__": "Use the names of the class's members",
}

_ATTRIBUTES: Final = {
    "__globals__": "Use the variable by its name",
    "__builtins__": "Call the builtin by its name",
    "__subclasses__": "Keep a list of your classes, or fill it in `__init_subclass__`",
    "__closure__": "Return the value from the function that holds it",
    "__import__": "Write `import module`",
    "__array_interface__": "Use `np.asarray(x)` or give the class an `__array__` method",
    "__reduce__": "Give the class `__copy__`/`__deepcopy__`, or convert to and from a dict",
    "__reduce_ex__": "Give the class `__copy__`/`__deepcopy__`, or convert to and from a dict",
    "__class__": "Create an object of the other class from this one's values",
    "__dict__": "Assign the attributes one by one, or call `vars(obj).update(...)` on an object of your own",
    "__code__": "Define a new function",
    "__prepare__": "Collect what you need in `__init_subclass__` or a class decorator",
}


def blocked_builtin(name: str) -> Refusal:
    """For a builtin that the session's policy blocks."""
    return Refusal(
        f"'{name}' is not available in this session (policy field language.blocked_names)",
        _BLOCKED_BUILTINS.get(name, "Define a function of your own under another name"),
        "builtin",
    )


def denied_name(name: str) -> Refusal:
    """For a name that belongs to the interpreter."""
    way = _NAMES.get(name, "Call builtins by name and import with `import`")
    return Refusal(
        f"the name '{name}' belongs to the interpreter and is not available in this session", way, "interpreter"
    )


def denied_attribute(name: str) -> Refusal:
    """For an attribute that no object gives."""
    why = f"attribute '{name}' leads to the interpreter's internals and is not available in this session"
    return _denied(name, why, "Use the object's public attributes")


def denied_store(name: str) -> Refusal:
    """For an attribute that may not be assigned or deleted."""
    why = f"attribute '{name}' may not be assigned or deleted in this session"
    return _denied(name, why, "Use an ordinary name for your own attribute")


def denied_class_member(name: str) -> Refusal:
    """For a name that a class body may not define."""
    return _denied(name, f"a class may not define '{name}' in this session", "Use an ordinary name for the member")


def _denied(name: str, reason: str, usual_way: str) -> Refusal:
    return Refusal(reason, _ATTRIBUTES.get(name, usual_way), "interpreter")


def class_pattern(name: str) -> Refusal:
    """For an attribute that a class pattern may not look into."""
    return Refusal(
        f"attribute '{name}' may not be used in a class pattern",
        f"Bind the object (`case Name() as obj`) and read `obj.{name}` in the body",
    )


def private_import(name: str) -> Refusal:
    """For ``from module import _name``."""
    return Refusal(f"'{name}' is private to its module and may not be imported", "Import a public name", "private")


def relative_import() -> Refusal:
    """For ``from . import x``: a cell is in no package."""
    return Refusal("a cell is not part of a package, so it has no relative imports", "Write the module's full name")


def unknown_syntax(kind: str) -> Refusal:
    """For a node type that no reviewed version of the grammar has."""
    return Refusal(
        f"{kind} is syntax that this version of the sandbox does not know, so it is refused",
        "Write it with older syntax",
    )


def too_deep() -> Refusal:
    """For code whose expressions are nested beyond what the compiler can take."""
    return Refusal("the code is nested too deeply to be compiled", "Split the expression over several statements")
