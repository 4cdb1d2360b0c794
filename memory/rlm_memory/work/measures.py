"""How the work in a tree is going, from what is recorded anyway: events, batches, chains, hand-offs.

Each number states how many events it is based on. There is no number where nothing has happened yet.
"""

from __future__ import annotations

from rlm_ipc.work_requests import MeasuredLine
from rlm_memory.store import Store

_EVENTS = "FROM frame_events e JOIN frames f ON f.key = e.frame WHERE f.tree = :tree"
# A holder is one agent for its whole life. A task that a person ends manually is not an agent's work.
_TASKS = f"""
    SELECT count(*) AS events, sum(done) AS value FROM (
        SELECT e.author, (
            SELECT count(*) FROM frame_events p JOIN frames g ON g.key = p.frame
            WHERE p.author = e.author AND p.verb = 'pop' AND g.tree = :tree AND g.kind = 'task'
                AND json_extract(p.data, '$.status') = 'completed'
        ) AS done {_EVENTS} AND e.verb = 'claim' GROUP BY e.author)"""
_BATCHES = """
    SELECT coalesce(sum(batches), 0) AS events, sum(batches_completed) AS value
    FROM session_metrics WHERE tree = :tree"""
_LOST = f"""
    SELECT count(*) FILTER (WHERE e.verb = 'claim') AS events, count(*) FILTER (WHERE e.verb = 'freed') AS value
    {_EVENTS} AND e.verb IN ('claim', 'freed')"""
# A loop starts another agent by itself. Without one, a person has to: each claim of a task after the first shows that.
_RESTARTS = f"""
    SELECT by_loop + by_hand AS events, by_loop AS value FROM (
        SELECT (
            SELECT count(*) FROM work_chain_runs r JOIN frames f ON f.key = r.frame
            WHERE f.tree = :tree AND json_extract(r.data, '$.kind') <> 'first'
        ) AS by_loop, (
            SELECT count(*) {_EVENTS} AND e.verb = 'claim' AND json_extract(e.data, '$.fence') > 1
                AND NOT EXISTS (SELECT 1 FROM work_chain_runs r WHERE r.frame = e.frame)
        ) AS by_hand)"""
_DELETED = """
    SELECT count(*) AS events, count(*) FILTER (WHERE h.details IS NULL) AS value
    FROM frame_handoffs h JOIN frames f ON f.key = h.frame
    WHERE f.tree = :tree AND (h.details IS NOT NULL OR h.compacted_at IS NOT NULL)"""
_CHAINS = """
    SELECT count(DISTINCT c.number) AS events, count(r.number) AS value
    FROM work_chains c JOIN work_chain_runs r ON r.chain = c.number WHERE c.tree = :tree"""


def measures(store: Store, tree: str) -> list[MeasuredLine]:
    """Return the current table of targets."""
    lines = (
        ("tasks per agent", _TASKS, False, "8 or more", 8.0, "agents"),
        ("batches completed", _BATCHES, True, "95 % or more", 0.95, "batches"),
        ("claims lost", _LOST, True, "rare: work in progress is kept", None, "claims"),
        ("restarts by a loop", _RESTARTS, True, "all", 1.0, "restarts"),
        ("hand-off details deleted", _DELETED, True, "all finished tasks", None, "hand-offs with details"),
        ("agents per chain", _CHAINS, False, "no target", None, "chains"),
    )
    with store.transaction():
        counted = [(line, store.rows(line[1], tree=tree)[0]) for line in lines]
    table = []
    for (name, _, share, target, least, of), row in counted:
        value = (row["value"] or 0) / row["events"] if row["events"] else None
        met = None if value is None or least is None else value >= least
        table.append(MeasuredLine(name, value, share, target, met, row["events"], of))
    return table
