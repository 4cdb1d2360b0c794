"""The guarded read: attribute names that are dangerous on some types of object, decided by ``type(obj)``.

One small function per family of names, in a table; ``read_guarded(obj, name)`` is what compiled code calls.
"""

from __future__ import annotations

import collections
import string
import types
from collections.abc import Callable
from typing import Any, Final

from rlm_sandbox.language_wall import _core
from rlm_sandbox.language_wall.formatting import SafeFormatter, is_plain_format
from rlm_sandbox.language_wall.guards import any_name, pandas_names
from rlm_sandbox.language_wall.guards.attributes import (
    FRAMES,
    holds,
    is_proxy,
    must_guard,
    refuse,
    super_target,
    wash,
)
from rlm_sandbox.language_wall.guards.buffers import refuse_descriptors, refuse_objects
from rlm_sandbox.language_wall.guards.classes import SafeType, is_metaclass, type_of
from rlm_sandbox.language_wall.guards.namespaces import namespace_of
from rlm_sandbox.language_wall.registry import (
    CLEAN,
    FORMATS,
    USER,
    dict_of,
    is_class,
    is_user_function,
    mro_of,
)

Reader = Callable[[Any, str], Any]

_HARMLESS_ON_FRAMES: Final = frozenset(
    {"tb_lineno", "tb_lasti", "tb_next", "gi_running", "cr_running", "ag_running", "f_lineno", "__class__"}
)
_ON_PROXIES: Final = frozenset({"__class__", "__origin__", "__args__", "__value__"})


def read_guarded(obj: Any, name: str) -> Any:
    """``obj.name`` for a name that is dangerous on some type of object, or ``AttributeRefused``."""
    if type(obj) in FRAMES and name not in _HARMLESS_ON_FRAMES:
        refuse(name, "would show the frames of the interpreter, which are not available in this session")
    if is_proxy(obj) and name not in _ON_PROXIES:
        refuse(name, "is not read through a proxy or a generic alias here: take the object itself")
    return _READERS.get(name, _plain)(obj, name)


def read_named(obj: Any, name: Any) -> Any:
    """``obj.name`` for a name known at run time only: the same rules as at compile time."""
    if must_guard(obj, name):
        return read_guarded(obj, name)
    return wash(getattr(obj, name))


def _plain(obj: Any, name: str) -> Any:
    return wash(getattr(obj, name))


def _own(obj: Any) -> bool:
    """Return whether an instance's class is the session's."""
    return type(obj) in USER


def _own_attribute(obj: Any, name: str) -> bool:
    """Return whether an object's attribute is the session's own, not inherited from a library."""
    cls = obj if is_class(obj) else type(obj)
    if cls not in USER:
        return False
    owner = next((base for base in mro_of(cls) if name in dict_of(base)), None)
    if owner is not None:
        return owner in USER
    return cls in CLEAN or holds(obj, name)


# -- the object and its class


def _class(obj: Any, name: str) -> Any:
    return type_of(obj)


def _dict(obj: Any, name: str) -> Any:
    """Return the live namespace of the session's own objects, a copy of the public part of others."""
    if type(obj) in CLEAN:
        return getattr(obj, name)
    try:
        return namespace_of(obj)
    except TypeError:  # what vars() says about an object without one
        raise AttributeError(f"'{type(obj).__name__}' object has no attribute '{name}'", name=name) from None


def _bases(obj: Any, name: str) -> Any:
    """``__mro__``, ``__bases__``, ``mro``: not of metaclasses, whose bases end in the raw ``type``."""
    if is_class(obj):
        if is_metaclass(obj):
            refuse(name, "of a metaclass is not available in this session")
        return getattr(obj, name)
    if is_metaclass(super_target(obj)):
        refuse(name, "of a metaclass is not available in this session")
    if name == "mro" or _own(obj):
        return _plain(obj, name)
    return refuse(name)


def _new(obj: Any, name: str) -> Any:
    if is_metaclass(super_target(obj)):
        return SafeType.__new__
    return getattr(obj, name)


def _get_attribute(obj: Any, name: str) -> Any:
    """Return ``__getattribute__`` or ``__getattr__``, which read any name, with a check of what they read."""
    real = getattr(obj, name)
    if type(obj) is super or _own(obj):
        return _reading(super_target(obj), real)
    if not is_class(obj):
        refuse(name)
    return lambda target, attribute: _read_by(real, target, attribute, lambda: real(target, attribute))


def _reading(target: Any, real: Any) -> Callable[[str], Any]:
    """Return the method that reads attributes of ``target`` by ``real``, and checks each."""
    return lambda attribute: _read_by(real, target, attribute, lambda: real(attribute))


def _read_by(real: Any, target: Any, attribute: str, look: Callable[[], Any]) -> Any:
    if not must_guard(target, attribute):
        return wash(look())
    if not any_name.may_look(real, target, attribute):
        return read_guarded(target, attribute)
    if attribute in any_name.READING:
        return _reading(target, look())
    return any_name.storing(target, look()) if attribute in any_name.STORING else wash(look())


def _state(obj: Any, name: str) -> Any:
    """Pickle's view of an object is its live namespace: only of the session's own."""
    target = super_target(obj)
    if type(target) in CLEAN or _own_attribute(obj, name):
        return getattr(obj, name)
    return refuse(name, "of library objects is not available here: use copy.copy or public attributes")


def _descriptor(obj: Any, name: str) -> Any:
    target = super_target(obj)
    library = [base for base in mro_of(type(target)) if base not in USER and name in dict_of(base)]
    own = _own(target) and _DESCRIPTORS.issuperset(library)
    if own and classmethod in library:  # before 3.13 it asks the descriptor that it holds, for whatever object is named
        own = type(_held_by(target)) is types.FunctionType
    if own or type(obj) is types.FunctionType:
        return getattr(obj, name)
    return refuse(name)


_held_by: Final = classmethod.__dict__["__func__"].__get__


_DESCRIPTORS: Final = frozenset({property, classmethod, staticmethod})
"""They return what their functions return. ``cached_property`` stores it in the object, whosever it is."""


def _fields(obj: Any, name: str) -> Any:
    """A copy: dataclasses.replace reads the attributes that the live dict names."""
    return dict(getattr(obj, name))


# -- functions and methods


def _function_part(obj: Any, name: str) -> Any:
    """``__self__``, ``__wrapped__`` and the like: of the session's own functions and methods."""
    cls = type(obj)
    if cls in CLEAN and name in ("__file__", "__path__", "__wrapped__"):
        return getattr(obj, name)
    if cls is types.MethodType:
        if name == "__self__" and _own(obj.__self__):
            return obj.__self__
        if name == "__func__" and is_user_function(obj.__func__):
            return obj.__func__
    if name in ("__wrapped__", "__defaults__", "__kwdefaults__"):
        inner = getattr(obj, "__wrapped__", None) if cls is not types.FunctionType else obj
        if is_user_function(inner):
            return wash(getattr(obj, name))
    return refuse(name)


def _own_only(obj: Any, name: str) -> Any:
    return _plain(obj, name) if _own_attribute(obj, name) else refuse(name)


def _type_argument(obj: Any, name: str) -> Any:
    """``__origin__``, ``__args__``, ``__bound__`` ...: may hold the raw ``type``."""
    value = getattr(obj, name)
    return tuple(map(wash, value)) if type(value) is tuple else wash(value)


# -- particular libraries


def _error_object(obj: Any, name: str) -> Any:
    """``error.obj`` is the object an attribute was not found on: any object of any library."""
    value = _plain(obj, name)
    target = super_target(obj)
    if not isinstance(target, AttributeError | NameError):
        return value
    if value is None or type(value) in CLEAN or type(value) in _PLAIN_VALUES:
        return value
    return refuse(name)


_PLAIN_VALUES: Final = frozenset({str, bytes, int, float, bool, complex})


def _resize(obj: Any, name: str) -> Any:
    """``ndarray.resize(refcheck=False)`` leaves views of freed memory."""
    real = getattr(obj, name)
    target = super_target(obj)
    if _own_attribute(obj, name) or not hasattr(type(target), "__array_finalize__"):
        return wash(real)

    def resize(*shape: Any, refcheck: bool = True) -> Any:
        return real(*shape)

    return resize


def _looking(look: Callable[..., None]) -> Reader:
    """A library's method, whose arguments are looked at before it is called."""

    def read(obj: Any, name: str) -> Any:
        real = _plain(obj, name)
        if _own_attribute(obj, name) or not callable(real):
            return real

        def checked(*args: Any, **kwargs: Any) -> Any:
            look(*args, *kwargs.values())
            return real(*args, **kwargs)

        return checked

    return read


_into: Final = _looking(refuse_objects)
"""``readinto`` and ``pack_into`` write bytes: not over the references that an array holds."""
_to_file: Final = _looking(refuse_descriptors)
"""``ndarray.tofile`` writes to the descriptor that a file says it has."""


def _cast(obj: Any, name: str) -> Any:
    """``memoryview.cast``: not of an array of objects."""
    if obj is memoryview:
        return _into(obj, name)
    if type(obj) is memoryview:
        refuse_objects(obj)
    return _plain(obj, name)


# -- str.format


def _format(obj: Any, name: str) -> Any:
    """Return ``format`` of a text, its class or a ``UserString``: however it was reached, it formats by the rules."""
    if type(obj) is not super and issubclass(type(obj), string.Formatter):
        refuse(name)
    real = _plain(obj, name)
    kind = type(real)
    if kind is types.BuiltinFunctionType and isinstance(real.__self__, str):
        return _format_of_text(real.__self__, name)
    if kind is types.MethodDescriptorType and issubclass(real.__objclass__, str):
        return _unbound_format if name == "format" else _unbound_format_map
    function = real.__func__ if kind is types.MethodType else real
    if function is not _USER_STRING[name]:
        return real
    if kind is types.MethodType:
        return SessionFormatter().bound(str(real.__self__.data), name)
    unbound = _unbound_format if name == "format" else _unbound_format_map
    return lambda owner, *args, **kwargs: unbound(str(owner), *args, **kwargs)


_USER_STRING: Final = {name: vars(collections.UserString)[name] for name in ("format", "format_map")}


def _format_of_text(value: str, name: str) -> Any:
    template = str.__str__(value)
    if is_plain_format(template):
        if type(value) is str:
            _core.admit(FORMATS, template)
        return getattr(template, name)
    return SessionFormatter().bound(template, name)


class SessionFormatter(SafeFormatter):
    """The formatter for texts that read attributes which are not harmless."""

    def read(self, obj: Any, name: str) -> Any:
        """Read an attribute as the session's ``getattr`` does."""
        return read_named(obj, name)

    def bound(self, template: str, method: str) -> Callable[..., str]:
        """``template.format`` or ``template.format_map``."""
        if method == "format":
            return lambda *args, **kwargs: self.vformat(template, args, kwargs)
        return lambda mapping: self.vformat(template, (), mapping)


def _unbound_format(template: str, /, *args: Any, **kwargs: Any) -> str:
    return SessionFormatter().vformat(template, args, kwargs)


def _unbound_format_map(template: str, mapping: Any, /) -> str:
    return SessionFormatter().vformat(template, (), mapping)


def _table() -> dict[str, Reader]:
    families: list[tuple[str, Reader]] = [
        ("__class__", _class),
        ("__dict__", _dict),
        ("__mro__ __bases__ __base__ mro __orig_bases__", _bases),
        ("__new__", _new),
        ("__getattribute__ __getattr__", _get_attribute),
        ("__setattr__ __delattr__", any_name.set_attribute),
        ("__setstate__ __getstate__ __reduce__ __reduce_ex__", _state),
        ("__get__ __set__ __delete__", _descriptor),
        ("__dataclass_fields__", _fields),
        ("__origin__ __args__ __bound__ __value__ __constraints__ __default__", _type_argument),
        ("__self__ __func__ __wrapped__ __code__ __defaults__ __kwdefaults__ __weakref__", _function_part),
        ("__prepare__ __file__ __path__", _function_part),
        ("__signature__", _plain),
        ("func_globals func_code func_defaults func_closure func_dict", _own_only),  # functions of Cython have these
        ("get_loop get_stack print_stack get_coro get_context", _own_only),
        ("ctypes from_address from_buffer from_buffer_copy in_dll capsule cffi cell_contents", _own_only),
        ("load_module exec_module get_code find_spec find_module loader", _own_only),
        ("obj", _error_object),
        ("resize", _resize),
        ("query eval", pandas_names.evaluating_method),
        ("agg aggregate apply transform pivot_table", pandas_names.naming_method),
        ("readinto readinto1 pack_into", _into),
        ("cast", _cast),
        ("tofile", _to_file),
        (
            "env environment template_html template_html_table template_html_style template_latex",
            pandas_names.template,
        ),
        ("template_typst template_string from_custom_template", pandas_names.template),
        ("format format_map", _format),
    ]
    return {name: reader for names, reader in families for name in names.split()}


_READERS: Final = _table()
