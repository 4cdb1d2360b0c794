"""Policies: what a session may do. The public face of the schema, the files and their documentation.

``load_policy("default")`` reads a policy by name or path; ``resolve(policy, workspace, scratch)`` makes its
paths real.
"""

from rlm_sandbox.policy_compare import admits, is_stricter_or_equal, loosened
from rlm_sandbox.policy_docs import FieldDoc, policy_fields, policy_schema, schema_table
from rlm_sandbox.policy_files import load_policy, policy_directories, policy_names
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
)
from rlm_sandbox.wall_names import WALL_NAMES, WallName

__all__ = [
    "GIB",
    "KIB",
    "MIB",
    "SEED_BLOCKED_NAMES",
    "WALL_NAMES",
    "FieldDoc",
    "FilePolicy",
    "LanguagePolicy",
    "Limits",
    "LlmPolicy",
    "Policy",
    "WallName",
    "WallPolicy",
    "admits",
    "is_stricter_or_equal",
    "load_policy",
    "loosened",
    "policy_directories",
    "policy_fields",
    "policy_names",
    "policy_schema",
    "resolve",
    "schema_table",
]
