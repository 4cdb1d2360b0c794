"""The version of rlm-kernel, in a module of its own: the front cannot afford ``importlib.metadata``."""

VERSION = "0.1.0"


def is_later(one: str, other: str) -> bool:
    """Whether the first version is later than the other; False if either is not a version."""
    try:
        first, second = ([int(part) for part in name.split(".")[:3]] for name in (one, other))
    except ValueError:
        return False
    return first > second
