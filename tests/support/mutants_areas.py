"""What `make mutants` changes, the tests that are to notice it, and the mutants that no test can."""

from dataclasses import dataclass

SERVICE = "mcp_server/rlm_mcp/service"
TOOLS = "tests/mcp_server/tools"
SUPERVISOR = "kernel/rlm_kernel/supervisor"
WALL = "sandbox/rlm_sandbox/language_wall"
WALL_TESTS = "tests/sandbox/language_wall/test"
OS_WALL = "sandbox/rlm_sandbox/os_wall"
KEEPER = "tests/kernel/supervisor/test_keeper.py::test"


@dataclass(frozen=True)
class Area:
    """Modules, some only in the functions named after the colon, and what pytest is told; quick tests come first."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]


AREAS = {
    "policies": Area(
        ("sandbox/rlm_sandbox/policy/compare.py",),
        ("tests/sandbox/policy/test_compare.py", "tests/sandbox/policy/test_compare_parts.py"),
    ),
    "journal": Area(
        ("memory/rlm_memory/journal.py", "memory/rlm_memory/limits.py", f"{SERVICE}/sessions/journal.py"),
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
            f"{SERVICE}/contexts/names.py:SessionNames.record,SessionNames._drop_table,SessionNames.quota_exceeded",
            f"{SERVICE}/contexts/names.py:SessionNames.drop",
            f"{SERVICE}/contexts/ingesting.py:Ingestion.ingest",
            f"{SERVICE}/contexts/loading.py:Loader._ingest",
        ),
        (
            "tests/memory/test_contexts.py",
            f"{TOOLS}/test_quota.py",
            f"{TOOLS}/test_reading.py::test_kept_outputs_are_listed_and_bounded",
            f"{TOOLS}/test_urls.py::test_a_url_that_the_policy_permits_is_loaded_like_a_file",
            f"{TOOLS}/test_urls.py::test_a_url_that_cannot_be_read_or_never_ends_costs_its_own_load_only",
        ),
    ),
    "handles": Area(
        (
            "memory/rlm_memory/handles.py",
            f"{SERVICE}/contexts/handles.py",
            f"{SERVICE}/contexts/names.py:SessionNames.attach,SessionNames.find,SessionNames.drop_handle",
        ),
        (
            "tests/memory/test_handles.py",
            f"{TOOLS}/test_sharing.py",
            f"{TOOLS}/test_handles_told.py",
            f"{TOOLS}/test_named_texts.py",
            f"{TOOLS}/test_shadowing.py",
        ),
    ),
    "transcripts": Area(
        tuple(f"memory/rlm_memory/transcripts/{name}.py" for name in ("folding", "manager", "masking", "messages"))
        + tuple(f"memory/rlm_memory/transcripts/{name}.py" for name in ("pruner", "summaries", "tokens", "turn")),
        (
            "tests/memory/transcripts/test_documented.py",
            "tests/memory/transcripts/test_folding.py",
            "tests/memory/transcripts/test_properties.py",
        ),
    ),
    "work": Area(
        (
            *(f"memory/rlm_memory/work/{name}.py" for name in ("board", "handoffs", "holders", "items", "leases")),
            *(f"memory/rlm_memory/work/{name}.py" for name in ("measures", "metrics", "paths", "progress", "ready")),
            *("memory/rlm_memory/frames/counts.py", "memory/rlm_memory/frames/edges.py"),
            "mcp_server/rlm_mcp/service/work/trackers.py",
            *(f"mcp_server/rlm_mcp/formats/trackers/{name}.py" for name in ("beads", "task_master")),
        ),
        (
            *(f"tests/memory/work/test_{name}.py" for name in ("board", "edges", "handoffs", "leases", "measures")),
            "tests/mcp_server/service/test_trackers.py",
            "tests/memory/work/test_readiness.py",
        ),
    ),
    "frames": Area(
        (
            *(f"memory/rlm_memory/frames/{name}.py" for name in ("context", "ending", "results", "rows", "runtime")),
            *(f"memory/rlm_memory/frames/{name}.py" for name in ("states", "summaries", "tree")),
            f"{SERVICE}/frames/artifacts.py",
        ),
        (
            "tests/memory/frames/test_frame_tree.py",
            "tests/memory/frames/test_frame_ends.py",
            "tests/memory/frames/test_frame_context.py",
            "tests/memory/frames/test_frame_bounds.py",
            "tests/memory/frames/test_frame_crashes.py",
            "tests/mcp_server/service/test_frame_artifacts.py",
            "tests/memory/work/test_edges.py",
            f"{TOOLS}/test_frames.py::test_files_that_a_frame_has_written_are_its_artifacts",
            f"{TOOLS}/test_frames.py::test_invalidation_warns_of_what_runs_and_reopening_brings_back_the_same",
        ),
    ),
    "search": Area(
        (
            "contexts/rlm_contexts/search/scan.py",
            "contexts/rlm_contexts/text/text.py:Text.peek,Text._fit,Text._character_start,check_page",
        ),
        (
            "tests/contexts/search/test_scan_bounds.py",
            "tests/contexts/text/test_text.py",
            "tests/contexts/search/test_scan.py",
        ),
    ),
    "queries": Area(
        (
            "memory/rlm_memory/queries.py",
            "kernel/rlm_kernel/supervisor/cells/query_book.py",
            "kernel/rlm_kernel/supervisor/running/answer_wait.py",
            f"{SERVICE}/queries/answering.py",
        ),
        (
            "tests/memory/test_queries.py",
            "tests/kernel/supervisor/test_query_book.py",
            "tests/kernel/supervisor/test_answer_wait.py",
            f"{TOOLS}/test_given_answers.py",
            f"{TOOLS}/test_waiting.py",
            "tests/kernel/worker/test_waiting.py",
            f"{TOOLS}/test_structured.py",
            f"{TOOLS}/test_expiry.py",
        ),
    ),
    "budgets": Area(
        (
            "client/rlm_client/rlm/budget.py",
            "memory/rlm_memory/budgets.py",
            f"{SERVICE}/sessions/budgets.py",
            *(f"{SERVICE}/queries/{name}.py" for name in ("providers", "provider_queue")),
        ),
        (
            "tests/client/test_run_budget.py",
            "tests/mcp_server/service/test_provider_queue.py",
            "tests/mcp_server/service/test_handing_in.py",
            "tests/mcp_server/service/test_budget_sequences.py",
            f"{TOOLS}/test_budgets.py",
            f"{TOOLS}/test_providers.py",
            "tests/client/test_rlm.py",
        ),
    ),
    "snapshots": Area(
        ("kernel/rlm_kernel/worker/snapshot.py", "kernel/rlm_kernel/worker/snapshots/image.py"),
        (
            "tests/kernel/worker/test_snapshot_requests.py",
            f"{TOOLS}/test_snapshot_names.py",
            f"{TOOLS}/test_snapshots.py",
        ),
    ),
    "checkpoints": Area(
        (
            "kernel/rlm_kernel/supervisor/copies/checkpoints.py",
            "kernel/rlm_kernel/supervisor/copies/kernel_processes.py",
            "kernel/rlm_kernel/supervisor/copies/equipment.py",
            "kernel/rlm_kernel/supervisor/copies/recovery.py",
            "kernel/rlm_kernel/supervisor/cells/cell_history.py",
            "kernel/rlm_kernel/supervisor/copies/rollback.py",
            "kernel/rlm_kernel/supervisor/copies/checkpoint_timer.py",
        ),
        (
            "tests/kernel/supervisor/test_checkpoint_timer.py",
            "tests/kernel/supervisor/test_checkpoints.py",
            "tests/kernel/supervisor/test_rollback_model.py",
            "tests/kernel/supervisor/test_rollback.py",
            "tests/kernel/supervisor/test_recovery.py",
            "tests/kernel/supervisor/test_refusals.py",
        ),
    ),
    "adoption": Area(
        (
            *(f"{SUPERVISOR}/keeping/{name}.py" for name in ("keeping", "named_runs", "session_file")),
            *(f"{SUPERVISOR}/{name}.py" for name in ("adoption", "running/kept_session")),
        ),
        (
            "tests/kernel/supervisor/test_adoption.py",
            "tests/kernel/supervisor/test_session_file.py",
            "tests/kernel/supervisor/test_named_runs.py",
            "tests/kernel/supervisor/test_kept_queries.py",
            "tests/kernel/supervisor/test_keeping.py",
            f"{KEEPER}_variables_outlive_a_supervisor_whatever_the_policy",
            f"{KEEPER}_a_cell_goes_on_and_its_output_is_whole",
            f"{KEEPER}_a_cell_that_ends_while_nobody_serves_is_answered_once",
            f"{KEEPER}_a_cell_that_waits_for_a_model_goes_on_waiting",
            f"{KEEPER}_contexts_limits_and_undoing_outlive_a_supervisor",
            f"{KEEPER}_a_kernel_that_dies_with_its_supervisor_rolls_back_and_says_so",
            f"{KEEPER}_a_supervisor_dies_with_another_process_and_the_kernel_goes_on",
            f"{KEEPER}_a_killed_keeper_is_replaced_and_nothing_notices",
            f"{KEEPER}_a_supervisor_starts_anew_where_nobody_stands_by",
            f"{KEEPER}_without_keeper_and_supervisor_every_kernel_ends",
            f"{KEEPER}_a_name_runs_once",
            f"{KEEPER}_a_batch_outlives_a_supervisor_and_no_cell_of_it_runs_twice",
            f"{KEEPER}_cells_behind_one_that_fails_are_skipped",
            f"{KEEPER}_a_session_at_which_two_supervisors_have_failed_is_set_aside",
            "tests/kernel/supervisor/test_dying_supervisor.py",
            "tests/kernel/supervisor/test_given_images.py",
            "tests/kernel/supervisor/test_stand_ins.py",
        ),
    ),
    "language_wall": Area(
        (
            *(f"{WALL}/guards/{name}.py" for name in ("any_name", "attributes", "buffers", "class_cells")),
            *(f"{WALL}/guards/{name}.py" for name in ("class_checks", "classes", "namespaces", "reads", "replacing")),
            *(f"{WALL}/transform/{name}.py" for name in ("access", "functions", "scopes", "transformer")),
            *(f"{WALL}/{name}.py" for name in ("files", "names", "registry")),
        ),
        (
            *(f"{WALL_TESTS}_{name}.py" for name in ("scopes", "private_names", "guarded_reads", "replacing")),
            *(f"{WALL_TESTS}_{name}.py" for name in ("classes", "making_classes", "match", "getattr_and_type")),
            *(f"{WALL_TESTS}_{name}.py" for name in ("augmented_assignment", "namespace_reads", "files")),
            f"{WALL_TESTS}_printing_and_format.py",
            "tests/escapes/test_corpus.py::test_the_language_wall_holds",
        ),
    ),
    "os_wall": Area(
        (
            *(f"{OS_WALL}/{name}.py" for name in ("bpf", "confine", "fork_notifier", "landlock", "private_root")),
            *(f"{OS_WALL}/{name}.py" for name in ("privileges", "report", "rlimits", "seccomp", "tighten")),
        ),
        (
            *(f"tests/sandbox/os_wall/test_{name}.py" for name in ("seccomp", "landlock", "tighten", "confine")),
            *(f"tests/sandbox/os_wall/test_{name}.py" for name in ("lacking_systems", "private_root")),
            "tests/sandbox/os_wall/test_fork_notifier.py",
        ),
    ),
    "loop": Area(("mcp_server/rlm_mcp/loop/planner.py",), ("tests/mcp_server/loop/test_planner.py",)),
    "scanner": Area(
        ("lock/rlm_lock/parsing/pool.py", f"{SERVICE}/lock/scanner_process.py"),
        ("tests/mcp_server/service/test_scanner_process.py", "tests/lock/parsing/test_pool.py"),
    ),
    "reconnect": Area(
        (
            *(
                f"kernel/rlm_kernel/supervisor_connection.py:SupervisorConnection.{name}"
                for name in ("_c", "_e", "_f", "_g", "_m", "_s", "_t", "close", "start_", "wait_gone")
            ),
            *(
                f"{SERVICE}/sessions/supervisor_gateway.py:KernelGateway.{name}"
                for name in ("_c", "_d", "client", "listen")
            ),
        ),
        ("tests/kernel/test_supervisor_connection.py", "tests/mcp_server/service/test_supervisor_gateway.py"),
    ),
}
"""The areas, by the names that ``make mutants AREA=`` takes."""

_COMPARE = "sandbox/rlm_sandbox/policy/compare.py"
_ZERO = "zero = inf if endless_at_zero else"
_PEEK = "contexts/rlm_contexts/text/text.py:Text.peek"
_WINDOW = "high = self._character_start(low, min(high, low + {} * max_chars + {}))"
_TOP = 'chain = [*store.rows(_TOP, of=chain[{}]["tree"]), *chain]'
_ROOM = "4 * max_chars + 6 bytes are enough"
_ZIP = "return [_given_item(name, item) for name, item in zip(order, answers, strict={})]"
_ADOPT_GATE = f"{SUPERVISOR}/adoption.py:Adoption._gate"
_GATE = "gate = ForkBroker(fd, session.processes, self._keeping, name, memory[{}] if memory else None)"

EQUIVALENT: dict[str, str] = {
    f'{_COMPARE}:_free: return "" -> return None': "either says that nothing is looser",
    f"{_COMPARE}:_at_most.rule: {_ZERO} 0 -> {_ZERO} (0 - 1)": "no limit is between, or below, the two",
    "contexts/rlm_contexts/search/scan.py:_around: return range(0) -> return range((0 - 1))": "either is empty",
    **{
        f"{_PEEK}: {_WINDOW.format(8, 8)} -> {_WINDOW.format(*other)}": _ROOM
        for other in (("(8 + 1)", 8), ("(8 - 1)", 8), (8, "(8 + 1)"), (8, "(8 - 1)"))
    },
    f"{_ADOPT_GATE}: {_GATE.format(0)} -> {_GATE.format('(0 - 1)')}": "a gate has one memory at most",
    "kernel/rlm_kernel/supervisor/copies/equipment.py:Equipment.equip: del live.attached[name] -> pass": (
        "a kernel that is told again to let go of a context has let go of it already"
    ),
    f"memory/rlm_memory/frames/context.py:assemble: {_TOP.format(0)} -> {_TOP.format('(0 + 1)')}": (
        "all frames on the way are of one tree, and a way whose first frame is not the root has more than one"
    ),
    f"{SERVICE}/contexts/ingesting.py:Ingestion.ingest: raise TextTooLarge(limit, len(text)) -> pass": (
        "what stores the text measures it too, and says the same; this only spares its bytes"
    ),
    f"{SERVICE}/contexts/ingesting.py:Ingestion.ingest: assert_never(never) -> pass": "no other kind can be permitted",
    f"{SERVICE}/contexts/names.py:SessionNames.attach: return known, False -> return known, True": (
        "a kernel that is told of a change in its names, and there is none, goes on with those that it has"
    ),
    f"{SERVICE}/queries/answering.py:QueryService.read: {_ZIP.format(True)} -> {_ZIP.format(False)}": (
        "the ids in order are chosen by being as many as the answers"
    ),
}
"""Why no test can tell a mutant from the original, by `Mutant.name`."""
