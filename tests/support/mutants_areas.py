"""What `make mutants` changes, the tests that are to notice it, and the mutants that no test can."""

from dataclasses import dataclass

SERVICE = "mcp_server/rlm_mcp/service"
TOOLS = "tests/mcp/tools"


@dataclass(frozen=True)
class Area:
    """Modules, some only in the functions named after the colon, and what pytest is told; quick tests come first."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]


AREAS = {
    "policies": Area(
        ("sandbox/rlm_sandbox/policy_compare.py",),
        ("tests/sandbox/test_policy_compare.py", "tests/sandbox/test_policy_compare_parts.py"),
    ),
    "journal": Area(
        ("memory/rlm_memory/journal.py", "memory/rlm_memory/bounds.py", f"{SERVICE}/journal.py"),
        (
            "tests/memory/test_journal.py",
            "tests/memory/test_journal_limits.py",
            f"{TOOLS}/test_journal_writer.py",
            f"{TOOLS}/test_journal.py",
        ),
    ),
    "quota": Area(
        (
            "memory/rlm_memory/contexts.py:put,charged_bytes,_check_quota",
            f"{SERVICE}/contexts.py:Contexts._put,Contexts._drop_table,Contexts._ingest,Contexts._refuse_larger",
            f"{SERVICE}/contexts.py:Contexts._unload_context",
        ),
        ("tests/memory/test_contexts.py", f"{TOOLS}/test_quota.py"),
    ),
    "handles": Area(
        (
            "memory/rlm_memory/handles.py",
            f"{SERVICE}/handles.py",
            f"{SERVICE}/contexts.py:Contexts.attach,Contexts.find,Contexts._unload_handle",
        ),
        (
            "tests/memory/test_handles.py",
            f"{TOOLS}/test_sharing.py",
            f"{TOOLS}/test_handles_told.py",
            f"{TOOLS}/test_named_texts.py",
            f"{TOOLS}/test_shadowing.py",
        ),
    ),
    "search": Area(
        (
            "kernel/rlm_kernel/contexts/scan.py",
            "kernel/rlm_kernel/contexts/text.py:Text.peek,Text._fit,Text._character_start,check_page",
        ),
        ("tests/contexts/test_scan_bounds.py", "tests/contexts/test_text.py", "tests/contexts/test_scan.py"),
    ),
    "queries": Area(
        ("memory/rlm_memory/queries.py", "kernel/rlm_kernel/host/queries.py", f"{SERVICE}/queries.py"),
        (
            "tests/memory/test_queries.py",
            f"{TOOLS}/test_waiting.py",
            "tests/kernel/test_waiting.py",
            f"{TOOLS}/test_structured.py",
            f"{TOOLS}/test_expiry.py",
            f"{TOOLS}/test_given_answers.py",
        ),
    ),
    "budgets": Area(
        ("kernel/rlm_kernel/recursion/budget.py", f"{SERVICE}/budgets.py", f"{SERVICE}/providers.py"),
        ("tests/client/test_rlm.py", f"{TOOLS}/test_budgets.py", f"{TOOLS}/test_providers.py"),
    ),
    "snapshots": Area(
        ("kernel/rlm_kernel/image/snapshot.py", "kernel/rlm_kernel/image/pickling.py"),
        (
            "tests/kernel/test_snapshot_bounds.py",
            f"{TOOLS}/test_snapshot_names.py",
            f"{TOOLS}/test_snapshots.py",
        ),
    ),
    "checkpoints": Area(
        (
            "kernel/rlm_kernel/host/images.py:Copy,Images",
            "kernel/rlm_kernel/host/rollback.py",
            "kernel/rlm_kernel/host/copying.py",
        ),
        (
            "tests/kernel/test_copies_book.py",
            "tests/kernel/test_rollback_model.py",
            "tests/kernel/test_rollback.py",
            "tests/kernel/test_repeatable.py",
            "tests/kernel/test_recovery.py",
        ),
    ),
}
"""The areas, by the names that ``make mutants AREA=`` takes."""

_COMPARE = "sandbox/rlm_sandbox/policy_compare.py"
_ZERO = "zero = inf if endless_at_zero else"

EQUIVALENT: dict[str, str] = {
    f'{_COMPARE}:_free: return "" -> return None': "either says that nothing is looser",
    f"{_COMPARE}:_at_most.rule: {_ZERO} 0 -> {_ZERO} (0 - 1)": "no limit is between, or below, the two",
}
"""Why no test can tell a mutant from the original, by `Mutant.name`."""
