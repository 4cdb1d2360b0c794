"""Policies: what a session may do. The public interface of the schema, the files and their documentation.

``load_policy("default")`` reads a policy by name or path; ``resolve(policy, workspace, scratch)`` makes its paths real.
``pin_policy`` fixes the content of one for the life of a session.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlm_sandbox.policy.compare import WAYS_OUT as WAYS_OUT
    from rlm_sandbox.policy.compare import admits as admits
    from rlm_sandbox.policy.compare import is_stricter_or_equal as is_stricter_or_equal
    from rlm_sandbox.policy.compare import loosened as loosened
    from rlm_sandbox.policy.documentation import FieldDoc as FieldDoc
    from rlm_sandbox.policy.documentation import policy_fields as policy_fields
    from rlm_sandbox.policy.documentation import schema_table as schema_table
    from rlm_sandbox.policy.files import load_policy as load_policy
    from rlm_sandbox.policy.files import policy_names as policy_names
    from rlm_sandbox.policy.layer_names import WALL_NAMES as WALL_NAMES
    from rlm_sandbox.policy.layer_names import WallName as WallName
    from rlm_sandbox.policy.model import SEED_BLOCKED_NAMES as SEED_BLOCKED_NAMES
    from rlm_sandbox.policy.model import FilePolicy as FilePolicy
    from rlm_sandbox.policy.model import LanguagePolicy as LanguagePolicy
    from rlm_sandbox.policy.model import Limits as Limits
    from rlm_sandbox.policy.model import LlmPolicy as LlmPolicy
    from rlm_sandbox.policy.model import Policy as Policy
    from rlm_sandbox.policy.model import WallPolicy as WallPolicy
    from rlm_sandbox.policy.model import resolve as resolve
    from rlm_sandbox.policy.model import without_language_wall as without_language_wall
    from rlm_sandbox.policy.pin import PinnedPolicy as PinnedPolicy
    from rlm_sandbox.policy.pin import digest_of as digest_of
    from rlm_sandbox.policy.pin import pin_policy as pin_policy
    from rlm_sandbox.policy.pin import pinned as pinned
    from rlm_sandbox.policy.pin import unpin as unpin
    from rlm_sandbox.policy.pin import write_roots as write_roots
    from rlm_sandbox.policy.places import is_path as is_path
    from rlm_sandbox.policy.places import policy_directories as policy_directories
    from rlm_sandbox.policy.sizes import GIB as GIB
    from rlm_sandbox.policy.sizes import KIB as KIB
    from rlm_sandbox.policy.sizes import MIB as MIB
    from rlm_sandbox.policy.validation import checked as checked
    from rlm_sandbox.policy.validation import checked_json as checked_json
    from rlm_sandbox.policy.validation import policy_schema as policy_schema

_NAMES = {
    "compare": "WAYS_OUT admits is_stricter_or_equal loosened",
    "documentation": "FieldDoc policy_fields schema_table",
    "files": "load_policy policy_names",
    "layer_names": "WALL_NAMES WallName",
    "model": "FilePolicy LanguagePolicy Limits LlmPolicy Policy SEED_BLOCKED_NAMES WallPolicy resolve "
    "without_language_wall",
    "pin": "PinnedPolicy digest_of pin_policy pinned unpin write_roots",
    "places": "is_path policy_directories",
    "sizes": "GIB KIB MIB",
    "validation": "checked checked_json policy_schema",
}
"""The public names of each module."""
_HOMES = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names.split()}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
