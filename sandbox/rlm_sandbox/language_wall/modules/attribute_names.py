"""Functions of data libraries that read or write attributes by names in text, which no other rule sees."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections import UserString
from collections.abc import Callable
from typing import Any, Final

from rlm_sandbox.language_wall.formatting import is_plain_format
from rlm_sandbox.language_wall.guards.attributes import refuse
from rlm_sandbox.language_wall.guards.reads import SessionFormatter, read_named
from rlm_sandbox.language_wall.modules.in_place import replace_in
from rlm_sandbox.language_wall.registry import dict_of, mro_of

# -- texts that format objects


def harden_formats() -> None:
    """Make what formats objects by a text of the session follow its rules: styles, ticks, labels, bars, titles."""
    if (pandas := sys.modules.get("pandas")) is not None:
        replace_in(pandas.DataFrame, "style", lambda style: property(_styled(style.fget), doc=style.__doc__))
    if (ticker := sys.modules.get("matplotlib.ticker")) is not None:
        replace_in(ticker, "_UnicodeMinusFormat", _tick_format)
    cbook = sys.modules.get("matplotlib.cbook")
    if cbook is not None:
        cbook.__dict__["_auto_format_str"] = _label
    _take_plain_templates("tqdm.std", "tqdm", "format_meter")
    for grid in ("FacetGrid", "PairGrid"):
        _take_plain_templates("seaborn.axisgrid", grid, "set_titles")


def _label(fmt: Any, value: Any) -> str:
    """``matplotlib.cbook._auto_format_str``: ``%`` if that will do."""
    template = str(fmt)
    try:
        return template % (value,)
    except (TypeError, ValueError):
        return SessionFormatter().format(template, value)


def _take_plain_templates(module: str, owner: str, method: str) -> None:
    """Make a method that formats refuse templates that read other than harmless attributes."""
    cls = vars(sys.modules[module]).get(owner) if module in sys.modules else None
    if cls is not None and method in dict_of(cls):
        replace_in(cls, method, _for_plain_templates)


def _for_plain_templates(real: Any) -> Any:
    inner = getattr(real, "__func__", real)

    def checked(*args: Any, **kwargs: Any) -> Any:
        texts = [value for value in (*args, *kwargs.values()) if isinstance(value, str | UserString)]
        for text in texts:
            if type(text) is not str or not is_plain_format(text):
                refuse("format", "of a text that reads such attributes is not available in this session")
        return inner(*args, **kwargs)

    return staticmethod(checked) if isinstance(real, staticmethod) else checked


def _styled(real: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def style(frame: Any) -> Any:
        with contextlib.suppress(ImportError):  # without Jinja there are no styles, which pandas says itself
            render = importlib.import_module("pandas.io.formats.style_render")
            replace_in(render, "_maybe_wrap_formatter", _style_formatter)
        return real(frame)

    return style


def _style_formatter(real: Callable[..., Any]) -> Callable[..., Any]:
    def formatter_of(formatter: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(formatter, str):
            template = str.__str__(formatter)
            return real(lambda value: SessionFormatter().format(template, value), *args, **kwargs)
        return real(formatter, *args, **kwargs)

    return formatter_of


def _tick_format(real: Any) -> type:
    class TickFormat(SessionFormatter):
        """As matplotlib's own, which sets the sign of a negative number."""

        def format_field(self, value: Any, format_spec: str) -> str:
            return real().format_field(value, format_spec)  # type: ignore[no-any-return]

    return TickFormat


# -- properties of artists


def get_property(obj: Any, property: Any = None) -> Any:
    """``matplotlib.artist.getp``: prints the properties of an artist, or gives the one of that name."""
    artist = sys.modules["matplotlib.artist"].__dict__
    if property is not None:
        return read_named(obj, f"get_{str.__str__(property)}")()
    if artist["Artist"] not in mro_of(type(obj)):
        raise TypeError("getp needs the name of a property in this session")
    return artist["getp"](obj)


# -- parameters of estimators


def harden_estimators() -> None:
    """Let scikit-learn read the parameters that a class names by the session's rules."""
    if (base := sys.modules.get("sklearn.base")) is not None:
        replace_in(base.__dict__["BaseEstimator"], "get_params", lambda _: _reader_of_parameters())


def _reader_of_parameters() -> Callable[..., Any]:
    def get_params(self: Any, deep: bool = True) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in self._get_param_names():
            value = read_named(self, name)
            if deep and hasattr(value, "get_params") and not isinstance(value, type):
                found |= {f"{name}__{inner}": part for inner, part in value.get_params().items()}
            found[name] = value
        return found

    return get_params


# -- accessors


_accessors: Final[set[tuple[str, str]]] = set()


def _registration(kind: str) -> Callable[[Any], Any]:
    def register(name: Any) -> Any:
        name, pandas = str.__str__(name), sys.modules["pandas"]
        new = not hasattr(getattr(pandas, kind), name) or (kind, name) in _accessors
        if not new or not name.isidentifier() or name.startswith("_"):
            raise ValueError(f"an accessor needs a public name that {kind} does not have in this session: {name!r}")
        _accessors.add((kind, name))
        return getattr(pandas.api.extensions, f"register_{kind.lower()}_accessor")(name)

    return register


def named_shims() -> dict[str, Callable[..., Any]]:
    """Return the replacements, by the full name of what they replace."""
    accessors = {
        f"pandas.api.extensions.register_{kind.lower()}_accessor": _registration(kind)
        for kind in ("DataFrame", "Series", "Index")
    }
    functions = dict.fromkeys(
        ("matplotlib.artist.getp", "matplotlib.artist.get", "matplotlib.pyplot.getp", "matplotlib.pyplot.get"),
        get_property,
    )
    return accessors | functions
