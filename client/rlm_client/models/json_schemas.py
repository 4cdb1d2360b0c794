"""The import of the library for JSON schemas, without a part of it that takes a second and that nothing here uses."""

from __future__ import annotations

import importlib
import sys

__all__ = ["import_jsonschema"]

_FORMATS_OF_ADDRESSES = "rfc3987_syntax"
"""JupyterLab installs it. It builds 38 grammars when it is imported, and jsonschema imports whatever is installed."""


def import_jsonschema() -> None:
    """Import ``jsonschema``; call this before whatever imports it, as nbformat does.

    The formats "iri" and "iri-reference" are missing in this process then. Schemas are applied without formats here.
    """
    hidden = _FORMATS_OF_ADDRESSES not in sys.modules
    if hidden:
        sys.modules[_FORMATS_OF_ADDRESSES] = None  # type: ignore[assignment]  # an import of it fails
    try:
        importlib.import_module("jsonschema")
    finally:
        if hidden:
            del sys.modules[_FORMATS_OF_ADDRESSES]
