"""The libraries are large: `make test-adapters` installs them, the rest of the suite goes without."""

from importlib.util import find_spec

collect_ignore = [
    f"test_{module}.py" for module, library in {"dspy": "dspy", "rlms": "rlm"}.items() if find_spec(library) is None
]
