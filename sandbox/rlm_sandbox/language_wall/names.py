"""Which attribute and variable names are harmless, which dangerous on some objects, which never provided.

An attribute name is a constant of the program, so most decisions are made when a cell is compiled:

    NATIVE   harmless on every object: compiled to ordinary attribute access
    GUARDED  dangerous on some type of object: a run-time guard decides by ``type(obj)``
    PRIVATE  starts with an underscore: fine on the session's own objects, refused on those of libraries
    DENIED   never provided, whatever the object

Public names that no list mentions are NATIVE: modules are provided as copies without their dangerous parts (see
``modules``), so a public attribute of a reachable object is harmless unless it is listed here.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from RestrictedPython.transformer import INSPECT_ATTRIBUTES


class AttributeAccess(Enum):
    """How an attribute name is compiled."""

    NATIVE = "native"
    GUARDED = "guarded"
    PRIVATE = "private"
    DENIED = "denied"


NATIVE_DUNDERS: Final = frozenset(
    """
    __name__ __qualname__ __doc__ __module__ __version__ __all__ __author__ __title__ __annotations__
    __members__ __slots__ __match_args__ __len__ __iter__ __next__ __contains__ __getitem__ __setitem__
    __delitem__ __missing__ __reversed__ __length_hint__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__
    __bool__ __repr__ __str__ __bytes__ __format__ __sizeof__ __dir__ __int__ __float__ __complex__ __index__
    __round__ __trunc__ __floor__ __ceil__ __abs__ __neg__ __pos__ __invert__ __add__ __radd__ __iadd__
    __sub__ __rsub__ __isub__ __mul__ __rmul__ __imul__ __truediv__ __rtruediv__ __itruediv__ __floordiv__
    __rfloordiv__ __ifloordiv__ __mod__ __rmod__ __imod__ __pow__ __rpow__ __ipow__ __divmod__ __rdivmod__
    __and__ __rand__ __iand__ __or__ __ror__ __ior__ __xor__ __rxor__ __ixor__ __lshift__ __rlshift__
    __ilshift__ __rshift__ __rrshift__ __irshift__ __matmul__ __rmatmul__ __imatmul__ __call__ __init__
    __post_init__ __enter__ __exit__ __aenter__ __aexit__ __aiter__ __anext__ __await__ __cause__ __context__
    __suppress_context__ __notes__ __traceback__ __dataclass_params__ __abstractmethods__ __copy__
    __deepcopy__ __class_getitem__ __set_name__ __init_subclass__ __instancecheck__ __subclasscheck__
    __subclasshook__ __del__ __type_params__ __total__ __required_keys__ __optional_keys__ __fspath__
    __getnewargs__ __static_attributes__ __firstlineno__ __isabstractmethod__ __array__ __array_priority__
    __array_ufunc__ __array_function__ __array_wrap__ __array_finalize__ __array_namespace_info__
    """.split()
)

GUARDED_DUNDERS: Final = frozenset(
    """
    __class__ __dict__ __new__ __getattribute__ __getattr__ __setattr__ __delattr__ __mro__ __bases__ __base__
    __get__ __origin__ __args__ __bound__ __value__ __constraints__ __default__ __orig_bases__ __prepare__
    __weakref__ __self__ __func__ __wrapped__ __code__ __defaults__ __kwdefaults__ __file__ __path__
    __signature__ __reduce__ __reduce_ex__ __setstate__ __getstate__ __dataclass_fields__ __set__ __delete__
    """.split()
)

# Raw frames, the interpreter's tables, other modules' globals and raw memory: no object of a session needs
# them.
DENIED_ATTRIBUTES: Final = frozenset(
    """
    __globals__ __builtins__ __closure__ __subclasses__ __loader__ __spec__ __import__ __objclass__
    __thisclass__ __self_class__ __array_interface__ __array_struct__ __cuda_array_interface__
    __text_signature__ __cached__ __package__ __build_class__
    """.split()
)

FORMAT_METHODS: Final = frozenset({"format", "format_map"})

# Frames, tracebacks, generators and code lead to the globals of every function on the stack
# (INSPECT_ATTRIBUTES); Cython functions publish func_globals without an underscore; str.format walks
# attributes that no compiler sees; pandas evaluates the text given to query/eval; pathlib's `parser` is a
# module, pandas' `type` a metaclass; event loops, exceptions and metaclasses publish the rest. Then names
# that write bytes over the references of an array of objects, or to any descriptor, or show addresses of
# C code; those to which pandas lets a text name the method to call; and those that lead to Jinja's
# templates, which read any attribute.
GUARDED_PUBLIC: Final = (
    INSPECT_ATTRIBUTES
    | FORMAT_METHODS
    | frozenset(
        """
        mro ctypes from_address from_buffer from_buffer_copy in_dll f_lasti f_lineno f_trace_lines
        f_trace_opcodes co_consts co_names co_filename co_positions co_lines query eval obj resize
        func_globals func_code func_defaults func_closure func_dict get_loop get_stack print_stack get_coro
        get_context cell_contents load_module exec_module get_code find_spec find_module loader
        parser type
        readinto readinto1 pack_into cast tofile capsule cffi
        agg aggregate apply transform pivot_table
        env environment template_html template_html_table template_html_style template_latex template_typst
        template_string from_custom_template
        """.split()
    )
)

PUBLIC_UNDERSCORE: Final = frozenset(
    """
    _asdict _fields _replace _make _field_defaults _value_ _name_ _missing_ _generate_next_value_ _ignore_
    _order_ _repr_html_ _repr_png_ _repr_svg_ _repr_markdown_ _repr_latex_ _repr_json_ _repr_pretty_
    _repr_mimebundle_ _
    """.split()
)
"""Names that start with an underscore but are documented as public."""

# Storing these changes what an object is, or makes a library read raw memory or call something while copying.
DENIED_STORES: Final = frozenset(
    """
    __class__ __dict__ __globals__ __builtins__ __code__ __closure__ __defaults__ __kwdefaults__ __bases__
    __mro__ __base__ __wrapped__ __array_interface__ __array_struct__ __cuda_array_interface__ __reduce__
    __reduce_ex__ __loader__ __spec__ __import__ __build_class__ __subclasses__ __weakref__ __prepare__
    __self__ __func__ __objclass__ __dataclass_fields__ __buffer__ __release_buffer__
    """.split()
)

REPLACED_ON_OWN: Final = frozenset({"__class__", "__dict__"})
"""Those that a plain assignment may replace as a whole, on an object of plain classes of the session's own."""

NOT_REPLACED: Final = frozenset(
    """
    _member_map_ _member_names_ _value2member_map_ _unhashable_values_ _hashable_values_ _unhashable_values_map_
    """.split()
)
"""What an enumeration keeps in its class; without them it would show those of the library's classes above it."""

STORABLE_DUNDERS: Final = frozenset(
    """
    __doc__ __name__ __qualname__ __module__ __annotations__ __signature__ __notes__ __cause__ __context__
    __traceback__ __suppress_context__ __lt__ __le__ __gt__ __ge__ __repr__ __str__ __len__ __iter__ __call__
    __add__ __sub__ __mul__ __getitem__ __setitem__ __contains__ __init__ __bool__ __enter__ __exit__ __next__
    __version__ __all__ __author__ __test__ __type_params__
    """.split()
)
"""Dunder attributes that may be assigned on the session's own objects."""

REFUSED_WHEN_CALLED: Final = frozenset({"input"})
"""Builtins that a program often mentions in functions that it does not call: blocked, they refuse the call alone."""

DENIED_NAMES: Final = frozenset("__builtins__ __import__ __loader__ __spec__ __build_class__ __classdict__".split())
"""Variables that are plumbing of the interpreter: ``__import__`` is replaced by the guarded import, and
``__classdict__``, where an alias or a method's type parameters stand in a class, is the class's live namespace."""

# A guarded name that is native after all on an object whose class and bases are the session's own: it can
# only be what the session itself put there. Not so format (a str subclass inherits the real one) and the
# protocols of pickle.
NATIVE_ON_CLEAN: Final = (GUARDED_PUBLIC - FORMAT_METHODS) | {"__dict__"}


def is_dunder(name: str) -> bool:
    """Return whether ``name`` has two underscores at both ends."""
    return name.startswith("__") and name.endswith("__")


def is_private(name: str) -> bool:
    """Return whether ``name`` starts with an underscore and is neither a dunder nor documented as public."""
    return name.startswith("_") and not is_dunder(name) and name not in PUBLIC_UNDERSCORE


_ACCESS: Final[dict[str, AttributeAccess]] = {
    **dict.fromkeys(NATIVE_DUNDERS | PUBLIC_UNDERSCORE, AttributeAccess.NATIVE),
    **dict.fromkeys(GUARDED_DUNDERS | GUARDED_PUBLIC, AttributeAccess.GUARDED),
    **dict.fromkeys(DENIED_ATTRIBUTES, AttributeAccess.DENIED),
}


def access(name: str) -> AttributeAccess:
    """Return how reading the attribute ``name`` is compiled."""
    known = _ACCESS.get(name)
    if known is not None:
        return known
    return AttributeAccess.PRIVATE if name.startswith("_") else AttributeAccess.NATIVE


def may_store(name: str) -> bool:
    """Return whether an attribute of that name may be assigned or deleted at all."""
    if name in DENIED_STORES or name in DENIED_ATTRIBUTES or name in NOT_REPLACED:
        return False
    return not is_dunder(name) or name in STORABLE_DUNDERS


def mangle(class_name: str | None, name: str) -> str:
    """Return the name under which ``name`` is stored inside a class body: ``__x`` becomes ``_Class__x``."""
    if not class_name or not name.startswith("__") or name.endswith("__") or "." in name:
        return name
    stripped = class_name.lstrip("_")
    return f"_{stripped}{name}" if stripped else name
