"""Images that somebody made to gain something, and a process that tries each behind the language wall alone.

Run as a program it writes each image into a folder, restores it in a fork, and prints what came of it. An attack gives
an image, and `loot`: an expression that is true if the image has gained something.
"""

from __future__ import annotations

import builtins
import copyreg
import functools
import io
import json
import os
import pickle
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from snapshot_lab import Lab, bytes_of

from rlm_ipc.variable_images import LENGTH, MAGIC
from rlm_kernel.worker.snapshots import makers
from rlm_kernel.worker.snapshots.image import Image
from rlm_kernel.worker.snapshots.records import (
    CellText,
    ClassRecord,
    EnumMember,
    FunctionRecord,
    Member,
    Reference,
    Tables,
)

ATTACKS: dict[str, tuple[Callable[[], bytes], str, str]] = {}
OBJECT = Reference("builtin", ("object",))
IDENTITY = "def f(x=1): return x\n"
TWIN = "def f(self):\n    self._x\n    def g(): return self._default_decoder\n    return g\n"


def attack(loot: str, policy: str = "default") -> Callable[[Any], Any]:
    def take(function: Callable[[], bytes]) -> Any:
        ATTACKS[function.__name__] = function, loot, policy
        return function

    return take


class Make:
    """A call of a maker."""

    def __init__(self, name: str, *given: Any) -> None:
        self.call = makers.MAKERS[name], given

    def __reduce__(self) -> Any:
        return self.call


class Calls(Make):
    """A call of anything."""

    def __init__(self, function: Any, *given: Any) -> None:
        self.call = function, given


def image(value: Any, *states: Any, tables: Tables | None = None, buffers: tuple[bytes, ...] = ()) -> bytes:
    """An image of a variable `v`, and of states."""
    out = io.BytesIO()
    pickler = pickle.Pickler(out, 5)
    for stage in ({"v": value}, list(states), None):
        pickler.dump(stage)
    return bytes_of(Image(tables or Tables(), [out.getvalue()], buffers))


def raw(body: bytes, tables: Tables | None = None) -> bytes:
    """An image of a variable `v` that these opcodes make."""
    return bytes_of(Image(tables or Tables(), [b"\x80\x05}\x8c\x01v" + body + b"s.\x80\x05N."]))


def text(value: str) -> bytes:
    return b"\x8c" + bytes([len(value)]) + value.encode()


def named(name: str) -> bytes:
    return text(makers.HOME) + text(name) + b"\x93"


def call(name: str, *arguments: bytes) -> bytes:
    return named(name) + b"(" + b"".join(arguments) + b"tR"


def path_of(source: str, name: str, nth: int = 0, *, careful: bool = False) -> tuple[int, ...]:
    """Where the code of that name stands."""

    def look(code: Any, at: tuple[int, ...]) -> Any:
        for number, constant in enumerate(code.co_consts):
            if hasattr(constant, "co_consts"):
                if constant.co_name == name:
                    yield (*at, number)
                yield from look(constant, (*at, number))

    found: list[tuple[int, ...]] = list(look(LAB.environment.compile(source, "<craft>", 0, careful=careful), ()))
    return found[nth]


def functions(source: str, *paths: tuple[int, ...], nested: bool = False, cells: int = 0, classes: Any = ()) -> Tables:
    """Tables of functions from one text, each with all the cells."""
    made = (FunctionRecord(0, path, nested, tuple(range(cells)), "f", "f", "m", None) for path in paths)
    return Tables((CellText(source),), tuple(made), tuple(classes), cells)


def a_class(*, bases: tuple[Reference, ...] = (OBJECT,), form: str = "plain", **more: Any) -> ClassRecord:
    return ClassRecord("A", "A", "__main__", bases, None, form, **more)


def filled(function: Any = None, names: Any = None) -> tuple[str, int, tuple[Any, ...]]:
    return "fn", 0, (function, None, names or {}, {})


@attack("v() == 5")
def control_of_a_function() -> bytes:
    return image(Make("fn", 0), filled(), tables=functions("def f(): return 5\n", path_of("def f(): return 5\n", "f")))


@attack("v == 7")
def control_of_a_value() -> bytes:
    return image(7)


def _opcodes() -> None:
    """Opcodes that no image has."""
    build = call("fn", b"K\x00") + b"N}" + text("__kwdefaults__") + b"}s\x86b"
    tables = functions(IDENTITY, path_of(IDENTITY, "f"))
    for name, body in {
        "names_a_builtin": text("builtins") + text("eval") + b"\x93",
        "names_by_the_old_opcode": b"cos\nsystem\n",
        "names_a_part_of_a_maker": text(makers.HOME) + text("ext.__globals__") + b"\x93",
        "names_what_is_no_maker": text(makers.HOME) + text("HOME") + b"\x93",
        "names_from_the_memo": text(makers.HOME) + b"\x94" + text("os") + b"\x94h\x00h\x01\x93",
        "makes_by_class": call("builtin", text("type")) + b")\x81",
        "makes_by_class_with_names": call("builtin", text("type")) + b")}\x92",
        "makes_by_name": b"(ibuiltins\nlist\n",
        "makes_by_mark": b"(" + call("builtin", text("list")) + b"o",
        "uses_the_registry": b"\x82\x07",
        "refers_outside_by_text": b"P1\n",
        "refers_outside": b"K\x01Q",
        "calls_a_result": call("builtin", text("print")) + text("hi") + b"\x85R",
        "calls_a_maker_of_the_memo_with_a_list": named("ext") + b"\x94]R",
        "gives_a_maker_in_a_list": b"]" + named("ext") + b"a",
        "gives_a_maker_in_a_tuple": named("ext") + b"\x85",
        "gives_a_maker_as_a_key": b"}" + named("ext") + b"Ns",
        "gives_a_maker_in_a_set": b"\x8f(" + named("ext") + b"\x90",
        "gives_a_maker_to_a_maker": call("kind", text("slice"), b"(" + named("ext") + b"NNt"),
        "puts_items_into_a_module": call("module", text("json")) + text("loads") + b"Ns",
        "appends_to_what_was_made": call("kind", text("deque"), b"N\x85") + b"K\x01a",
        "appends_to_a_tuple": b")K\x01a",
        "takes_below_the_mark": b"](K\x01a",
        "reads_beyond_the_memo": b"j\xff\xff\xff\x3f",
        "writes_far_into_the_memo": b"Nr\xff\xff\xff\x3f",
        "has_bytes_without_end": b"\x96\x00\x00\x00\x00\x00\x01\x00\x00",
        "has_a_buffer_that_is_not_there": b"\x97",
        "looks_into_an_object": call("kind", text("byte stream"), b")") + b"\x98",
        "is_of_another_protocol": b"\x80\x04N",
        "has_a_text_of_python_2": b"U\x01a",
        "has_an_integer_as_text": b"I1\n",
    }.items():
        ATTACKS[name] = functools.partial(raw, body), "True", "default"
    ATTACKS["sets_attributes_of_a_function"] = functools.partial(raw, build, tables), "True", "default"


def _given() -> None:
    """Makers that are asked for what no session gets."""
    for name, value in {
        "asks_for_eval": Make("builtin", "eval"),
        "asks_for_import": Make("builtin", "__import__"),
        "asks_for_class_making": Make("builtin", "__build_class__"),
        "asks_for_a_module": Make("module", "ctypes"),
        "asks_for_our_module": Make("module", "rlm_sandbox"),
        "asks_for_a_program": Make("ext", "os", "system"),
        "asks_for_a_private_name": Make("ext", "collections", "_sys"),
        "asks_for_a_dotted_name": Make("ext", "collections", "abc.sys"),
        "asks_for_globals": Make("method", Make("ext", "json", "loads"), "__globals__", None),
        "asks_for_the_dict_of_a_class": Make("method", Make("ext", "json", "JSONDecoder"), "__subclasses__", None),
        "asks_for_a_private_attribute": Make("method", Make("ext", "json", "JSONDecoder"), "_x", None),
        "asks_for_a_kind_that_is_none": Make("kind", "os.system", ("id",)),
        "binds_a_library_function": Make("method", 1, "f", Make("ext", "json", "loads")),
        "makes_an_object_of_a_library": Make("instance", Make("ext", "json", "JSONDecoder")),
        "makes_an_exception_that_is_none": Make("kind", "exception", (Make("builtin", "list"), (), {})),
        "makes_a_context_that_is_not_there": Make("context", "secret"),
        "makes_a_view_of_a_stream": Make("kind", "view", (Make("kind", "byte stream", ()),)),
        "sets_a_private_part_of_an_element": Make("kind", "element", ("a", {1: 2})),
        "calls_the_system": Calls(os.getpid),
        "executes": Calls(exec, "import builtins; builtins.PWNED = 1"),
        "gets_attributes": Calls(getattr, "", "join"),
    }.items():
        ATTACKS[name] = functools.partial(image, value), "type(v).__name__ != 'Lost'", "default"


@attack("True")
def uses_an_extension() -> bytes:
    copyreg.add_extension("os", "system", 8)
    return raw(b"\x82\x08")


@attack("False")  # a cell can build it as well; it may not end the process in a strange way
def nests_deeply() -> bytes:
    return raw(b"(" * 200_000 + b"t" * 200_000)


@attack("True")
def makes_a_function_of_a_comprehension() -> bytes:
    source = "def f(self, y): return (self._x for i in y)\n"
    tables = functions(source, path_of(source, "<genexpr>"), cells=1)
    return image(Make("fn", 0), ("cell", 0, (Make("module", "json"),)), filled(), tables=tables)


@attack("True")
def gives_a_closure_to_the_second_body() -> bytes:
    tables = functions(TWIN, path_of(TWIN, "g", 1), cells=1)
    return image(Make("fn", 0), ("cell", 0, (Make("module", "json"),)), filled(), tables=tables)


@attack("_runs(v)")
def gives_a_closure_to_a_nested_function() -> bytes:
    tables = functions(TWIN, path_of(TWIN, "g", 0, careful=True), nested=True, cells=1)
    return image(Make("fn", 0), ("cell", 0, (Make("module", "json"),)), filled(), tables=tables)


@attack("True")
def makes_a_function_of_a_class_body() -> bytes:
    source = "class A:\n    x = 1\n"
    return image(Make("fn", 0), filled(), tables=functions(source, path_of(source, "A")))


@attack("True")
def makes_a_function_of_a_cell() -> bytes:
    return image(Make("fn", 0), filled(), tables=functions(IDENTITY, ()))


@attack("True")
def lacks_a_cell() -> bytes:
    source = "def f(a):\n    def g(): return a\n    return g\n"
    return image(Make("fn", 0), filled(), tables=functions(source, path_of(source, "g", careful=True), nested=True))


@attack("type(v).__name__ != 'Lost'")
def holds_code_that_is_refused() -> bytes:
    source = "def f(): return ().__class__.__subclasses__()\n"
    return image(Make("fn", 0), filled(), tables=functions(source, (0,)))


@attack("_runs(v)")
def imports_in_its_code() -> bytes:
    source = "def f():\n    import ctypes\n    return ctypes\n"
    return image(Make("fn", 0), filled(), tables=functions(source, path_of(source, "f")))


@attack("True")
def fills_a_function_with_a_library_function() -> bytes:
    tables = functions(IDENTITY, path_of(IDENTITY, "f"))
    return image(Make("fn", 0), filled(names={"__wrapped__": Make("builtin", "print")}), tables=tables)


@attack("True")
def gives_a_function_other_code() -> bytes:
    tables = functions(IDENTITY, path_of(IDENTITY, "f"))
    return image(Make("fn", 0), filled(names={"__code__": 1}), tables=tables)


def _classes() -> None:
    of_type = (Reference("builtin", ("type",)),)
    own = functions(IDENTITY, path_of(IDENTITY, "f"))
    methods = {name: (Member(name, "", 0),) for name in ("__reduce__", "__eq__", "__class__", "__dict__")}
    for name, record in {
        "derives_from_a_function": a_class(bases=(Reference("ext", ("types", "FunctionType")),)),
        "derives_from_a_module": a_class(bases=(Reference("ext", ("types", "ModuleType")),)),
        "derives_from_a_value": a_class(bases=(Reference("builtin", ("print",)),)),
        "derives_by_a_method": a_class(bases=(Reference("method", (1, "f", None)),)),
        "defines_how_it_is_pickled": a_class(methods=methods["__reduce__"]),
        "defines_its_class": a_class(methods=methods["__class__"]),
        "is_a_metaclass_that_compares": a_class(bases=of_type, methods=methods["__eq__"]),
        "has_a_slot_named_class": a_class(form="slots", fields=("__class__",)),
        "writes_code_into_a_dataclass": a_class(form="dataclass", fields=("x: print(1)",), options={"init": True}),
        "writes_code_into_a_namedtuple": a_class(form="namedtuple", fields=("x, y=print(1)",)),
        "is_an_enumeration_of_nothing": a_class(form="enum", members=(EnumMember("A", 1),)),
        "wraps_a_method_by_a_call": a_class(methods=(Member("f", "print", 0),)),
    }.items():
        tables = Tables(own.texts, own.functions, (record,))
        ATTACKS[name] = (
            functools.partial(image, Make("cls", 0), tables=tables),
            "type(v).__name__ != 'Lost'",
            "default",
        )


def _states() -> None:
    one = Tables(classes=(a_class(),))
    deque = Make("kind", "deque", (None,))
    decoder = Make("ext", "json", "JSONDecoder")
    slotted = Make("instance", Make("cls", 0))
    slot: Any = ({}, {"__class__": Make("builtin", "int")}, None)
    chance, numbers = Make("kind", "random", ()), (3, (1,) * 625 + (10**9,), None)
    partial = Make("kind", "partial", (Make("builtin", "len"), (), {}))
    for name, value, states, tables in (
        ("fills_a_library_class", decoder, [("instance", decoder, ({"decode": 1}, {}, None))], None),
        ("fills_twice", deque, [("deque", deque, [1]), ("deque", deque, [2])], None),
        ("fills_by_another_kind", deque, [("defaultdict", deque, (None, []))], None),
        ("fills_a_class_twice", Make("cls", 0), [("cls", 0, ({}, None)), ("cls", 0, ({}, None))], one),
        (
            "gives_a_class_a_library_finaliser",
            Make("cls", 0),
            [("cls", 0, ({"__del__": Make("builtin", "print")}, None))],
            one,
        ),
        ("gives_a_class_other_bases", Make("cls", 0), [("cls", 0, ({"__bases__": ()}, None))], one),
        ("gives_a_partial_a_private_attribute", partial, [("partial", partial, {"_x": 1})], None),
        ("fills_a_slot_that_is_none", slotted, [("instance", slotted, slot)], one),
        ("is_its_own_attributes_and_no_dict", slotted, [("instance", slotted, (True, {}, None))], one),
        ("fills_a_cell_that_is_none", 1, [("cell", 5, (1,))], None),
        ("gives_a_random_generator_a_state_of_its_own", chance, [("random", chance, numbers)], None),
    ):
        ATTACKS[name] = functools.partial(image, value, *states, tables=tables), "True", "default"


@attack("True", "data")
def makes_references_of_bytes() -> bytes:
    return image(Make("kind", "np array", ("array", "|O", (1,), "C", True, b"A" * 8)))


@attack("True", "data")
def hides_references_in_a_record() -> bytes:
    return image(Make("kind", "np array", ("array", [("a", "|O")], (1,), "C", True, b"A" * 8)))


@attack("True", "data")
def looks_beyond_an_array() -> bytes:
    base = Make("kind", "np array", ("array", "<i8", (1,), "C", True, b"\0" * 8))
    return image(Make("kind", "np array", ("view", base, "<i8", (1000,), (8,), 0, True)))


@attack("True", "data")
def looks_before_an_array() -> bytes:
    base = Make("kind", "np array", ("array", "<i8", (1,), "C", True, b"\0" * 8))
    return image(Make("kind", "np array", ("view", base, "<i8", (2,), (-8,), 0, True)))


@attack("True", "data")
def gives_a_generator_a_position() -> bytes:
    generator = Make("kind", "np generator", ("MT19937",))
    key = Make("kind", "np array", ("array", "<u4", (624,), "C", True, bytes(624 * 4)))
    state = {"bit_generator": "MT19937", "state": {"key": key, "pos": 10**6}}
    return image(generator, ("np generator", generator, state))


@attack("type(v).__name__ != 'Lost'", "strict")
def needs_a_library_that_is_refused() -> bytes:
    return image(Make("kind", "np array", ("array", "<i8", (1,), "C", True, b"\0" * 8)))


@attack("type(v).__name__ != 'Lost'", "strict")
def needs_a_module_that_is_refused() -> bytes:
    return image(Make("kind", "PosixPath", ("/etc",)))


@attack("True")
def holds_itself_as_a_key() -> bytes:
    source = "class K:\n    def __hash__(self): return hash(self.v)\n"
    tables = functions(source, path_of(source, "__hash__"), classes=(a_class(methods=(Member("__hash__", "", 0),)),))
    key = Make("instance", Make("cls", 0))
    return image({key: 1}, ("instance", key, ({"v": key}, {}, None)), tables=tables)


@attack("True")
def lies_about_sizes() -> bytes:
    return image(1).replace(b'"values": ', b'"values": 9', 1)


@attack("True")
def has_a_header_that_is_too_deep() -> bytes:
    return MAGIC + LENGTH.pack(100_000) + b"[" * 100_000


@attack("True")
def has_a_header_beyond_its_end() -> bytes:
    return MAGIC + LENGTH.pack(1 << 60)


@attack("True")
def has_cells_without_number() -> bytes:
    return image(1, tables=Tables(cells=10**15))


def _try(name: str, data: bytes, loot: str, lab: Lab) -> dict[str, Any]:
    resource.setrlimit(resource.RLIMIT_CPU, (40, 40))
    try:
        found = lab.restore(data)
    except Exception as error:
        return {"loaded": False, "gained": hasattr(builtins, "PWNED"), "why": f"{type(error).__name__}: {error}"[:200]}

    def runs(function: Any) -> bool:
        lab.namespace["__probe"] = function
        try:
            lab.run("__answer = __probe()")
        except Exception:
            return False
        return True

    gained = bool(eval(loot, {"v": found.get("v"), "_runs": runs})) or hasattr(builtins, "PWNED")
    return {"loaded": True, "gained": gained, "why": ""}


def _in_a_fork(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with os.fdopen(write, "w") as out:
            out.write(json.dumps(work()))
            out.flush()
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        told = answer.read()
    _, status = os.waitpid(child, 0)
    return json.loads(told) if told else {"loaded": False, "gained": False, "why": f"the process ended: {status}"}


def main(folder: Path, policy: str) -> None:
    """Write, try and report the attacks under one policy."""
    report = {}
    for name, (craft, loot, under) in ATTACKS.items():
        if under == policy:
            data = craft()
            (folder / name).write_bytes(data)
            report[name] = _in_a_fork(lambda name=name, data=data, loot=loot: _try(name, data, loot, LAB))  # type: ignore[misc]
    print(json.dumps(report))


if __name__ == "__main__":
    LAB = Lab(sys.argv[2])
    for add in (_opcodes, _given, _classes, _states):
        add()
    main(Path(sys.argv[1]), sys.argv[2])
