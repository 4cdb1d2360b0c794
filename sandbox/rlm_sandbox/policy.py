"""Policies: what a session may do. The public face of the schema, the files and their documentation.

``load_policy("default")`` reads a policy by name or path; ``resolve(policy, workspace, scratch)`` makes its
paths real. ``pin_policy`` fixes the content of one for the life of a session.
"""

from rlm_sandbox.policy_compare import WAYS_OUT, admits, is_stricter_or_equal, loosened
from rlm_sandbox.policy_docs import FieldDoc, policy_fields, policy_schema, schema_table
from rlm_sandbox.policy_files import is_path, load_policy, policy_directories, policy_names
from rlm_sandbox.policy_model import (
    GIB,
    KIB,
    MIB,
    SEED_BLOCKED_NAMES,
    FilePolicy,
    LanguagePolicy,
    Limits,
    LlmPolicy,
    Policy,
    WallPolicy,
    resolve,
    without_language_wall,
)
from rlm_sandbox.policy_pin import PinnedPolicy, digest_of, pin_policy, pinned, unpin, write_roots
from rlm_sandbox.wall_names import WALL_NAMES, WallName

__all__ = [
    "GIB",
    "KIB",
    "MIB",
    "SEED_BLOCKED_NAMES",
    "WALL_NAMES",
    "WAYS_OUT",
    "FieldDoc",
    "FilePolicy",
    "LanguagePolicy",
    "Limits",
    "LlmPolicy",
    "PinnedPolicy",
    "Policy",
    "WallName",
    "WallPolicy",
    "admits",
    "digest_of",
    "is_path",
    "is_stricter_or_equal",
    "load_policy",
    "loosened",
    "pin_policy",
    "pinned",
    "policy_directories",
    "policy_fields",
    "policy_names",
    "policy_schema",
    "resolve",
    "schema_table",
    "unpin",
    "without_language_wall",
    "write_roots",
]
