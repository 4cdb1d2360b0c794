"""The tables. Times are seconds since the epoch, sizes are bytes, JSON columns hold JSON objects.

Everything that belongs to a session has a column ``session``: the key of one life of one session, which is never
reused. It is a foreign key, so one ``DELETE`` ends a session and everything that belongs to it, and later writes for
that key are refused. A new table that holds anything of a session uses `OF_SESSION`.

`rlm_memory.migration` refuses a database whose ``user_version`` is not `VERSION`, unless a later version says that it
only added to what was there (`OLDEST_READER`). It adds missing tables, and missing columns that may be empty. Any other
change of a table raises `VERSION` and needs a step there. The tables of frames are in `rlm_memory.frame_schema`, those
of the queue in `rlm_memory.work_schema`, and those of the project lock in `rlm_memory.lock_schema`.
"""

from __future__ import annotations

from rlm_memory.tables import NUMBERED, Table

VERSION = 5
OLDEST_READER = 5
"""The earliest version whose program can use such a database unchanged.

A version that only adds tables or nullable columns keeps this value.
"""
OLDEST_READER_SCOPE = "oldest reader"
"""The counter through which a program of that version learns it."""

OF_SESSION = "INTEGER NOT NULL REFERENCES sessions (key) ON DELETE CASCADE"
"""The declaration of the column ``session`` of everything that ends with its session."""

sessions = Table(
    "sessions",
    # From a counter, so that the key is known before there is a row: the kernel is forked first.
    key="INTEGER NOT NULL PRIMARY KEY",
    # The name by which clients know it. An ended session has no row.
    id="TEXT NOT NULL UNIQUE",
    state="TEXT NOT NULL CHECK (state in ('active', 'resting'))",
    workspace="TEXT NOT NULL",
    policy="TEXT NOT NULL",
    idle_seconds="FLOAT NOT NULL",
    created_at="FLOAT NOT NULL",
    last_used_at="FLOAT NOT NULL",
    # When a suspended session ends; empty: not by itself.
    kept_until="FLOAT",
    # Why the variables of a suspended session could not be saved; empty: they were, or there were none.
    unsaved="TEXT",
    # The policy's content, and where it was read: it is never read there again.
    policy_text="TEXT",
    policy_digest="TEXT",
    # The policy of the first session in the family of forks.
    family_text="TEXT",
    family_digest="TEXT",
    indexes={"sessions_by_use": "(state, last_used_at)"},
)

endings = Table(
    "endings",
    # That a session with this name has ended, how and when; for an expired one, how much was deleted with it.
    id="TEXT NOT NULL PRIMARY KEY",
    how="TEXT NOT NULL CHECK (how in ('ended', 'expired'))",
    at="FLOAT NOT NULL",
    # Empty for sessions that someone ended.
    went="JSON",
    indexes={"endings_by_time": "(at)"},
)

writable_folders = Table(
    "writable_folders",
    # A folder that some session could write, even after that session's end: no policy is read from it.
    path="TEXT NOT NULL PRIMARY KEY",
)

contexts = Table(
    "contexts",
    session=OF_SESSION,
    name="TEXT NOT NULL",
    digest="TEXT NOT NULL",
    size="INTEGER NOT NULL",
    line_count="INTEGER NOT NULL",
    type="TEXT NOT NULL",
    metadata="JSON NOT NULL",
    origin="TEXT NOT NULL CHECK (origin in ('loaded', 'attached', 'output'))",
    # The handle through which the name came: equal content does not show that. Empty for every other origin.
    handle="TEXT",
    # Distinguishes two loads under one name, when a cell that began before the second reports on the first. A
    # forked session has its parent's value: it is the same load.
    revision="INTEGER NOT NULL",
    created_at="FLOAT NOT NULL",
    last_accessed_at="FLOAT NOT NULL",
    primary_key=("session", "name"),
    indexes={"contexts_by_digest": "(digest)"},
)

handles = Table(
    "handles",
    handle="TEXT NOT NULL PRIMARY KEY",
    session=OF_SESSION,
    name="TEXT NOT NULL",
    digest="TEXT NOT NULL",
    size="INTEGER NOT NULL",
    line_count="INTEGER NOT NULL",
    type="TEXT NOT NULL",
    metadata="JSON NOT NULL",
    # Whether the text counts against the owner's quota: not when the owner itself got it through a handle.
    charged="BOOLEAN NOT NULL",
    created_at="FLOAT NOT NULL",
    indexes={"handles_by_session": "(session, name)", "handles_by_digest": "(digest)"},
)

grants = Table(
    "grants",
    handle="TEXT NOT NULL REFERENCES handles (handle) ON DELETE CASCADE",
    audience="TEXT NOT NULL CHECK (audience in ('session', 'workspace', 'everyone'))",
    # The session id or the workspace path of the grant; empty for everyone.
    subject="TEXT NOT NULL",
    primary_key=("handle", "audience", "subject"),
)

queries = Table(
    "queries",
    session=OF_SESSION,
    id="TEXT NOT NULL",
    # The order of asking, which the ids do not show: queries of code and of tools are numbered separately.
    ordinal="INTEGER NOT NULL",
    prompt="TEXT NOT NULL",
    model="TEXT",
    state="TEXT NOT NULL CHECK (state in ('pending', 'answered', 'failed', 'cancelled'))",
    answer="TEXT",
    error="TEXT",
    created_at="FLOAT NOT NULL",
    resolved_at="FLOAT",
    primary_key=("session", "id"),
    indexes={"queries_by_state": "(session, state)"},
)

query_details = Table(
    "query_details",
    # What a query has besides its row: who is to answer it in what form, who did, and the usage.
    session=OF_SESSION,
    query="TEXT NOT NULL",
    mode="TEXT NOT NULL",
    form="JSON",
    answered_by="TEXT",
    input_tokens="INTEGER NOT NULL",
    output_tokens="INTEGER NOT NULL",
    cost="FLOAT NOT NULL",
    # Whether a model is to answer it in a session of its own.
    recursive="BOOLEAN",
    # Who asked it ("code" or "tool"), and its number among theirs.
    asked_by="TEXT",
    number="INTEGER",
    primary_key=("session", "query"),
)

inherited_queries = Table(
    "inherited_queries",
    # A query that a forked session holds and another session asked, whose key is ``asked_in``. While the other
    # session lives, it gets the query answered. At its end a fork takes the query over, so this is not a foreign
    # key.
    session=OF_SESSION,
    query="TEXT NOT NULL",
    asked_in="INTEGER NOT NULL",
    primary_key=("session", "query"),
    indexes={"inherited_queries_by_asker": "(asked_in, query)"},
)

budgets = Table(
    "budgets",
    # What the session's queries have used of its limits: their number, and what providers did for them.
    session=f"{OF_SESSION} PRIMARY KEY",
    calls="INTEGER NOT NULL",
    tokens="INTEGER NOT NULL",
    cost="FLOAT NOT NULL",
    milliseconds="INTEGER NOT NULL",
)

known_answers = Table(
    "known_answers",
    # Keyed by the hash of who was asked what: answers that any session whose policy allows it may get again.
    key="TEXT NOT NULL PRIMARY KEY",
    answer="TEXT NOT NULL",
    used_at="FLOAT NOT NULL",
    indexes={"known_answers_by_use": "(used_at)"},
)

journal = Table(
    "journal",
    # The order in which cells ended, over all sessions; a number is never reused.
    number=NUMBERED,
    session=OF_SESSION,
    author="TEXT NOT NULL CHECK (author in ('agent', 'notebook'))",
    code="TEXT NOT NULL",
    started_at="FLOAT NOT NULL",
    ended_at="FLOAT NOT NULL",
    status="TEXT NOT NULL",
    output="TEXT NOT NULL",
    queries="JSON NOT NULL",
    # What the row counts against the bounds of the journal: bytes of code, output and displays.
    size="INTEGER NOT NULL",
    # Set for a cell that the supervisor reported: it may report the same cell twice.
    kernel="TEXT",
    serial="INTEGER",
    # The attachment that a person's cell came through; empty for a client of the session's own connection file.
    attachment="TEXT",
    # Pictures and HTML that the cell showed, each a JSON object by MIME type.
    displays="JSON",
    # The number that the kernel gave the cell, the text of its last expression, and the lines of its traceback.
    count="INTEGER",
    value="TEXT",
    traceback="JSON",
    # The frame that the cell ran for. Not a foreign key: what a forgotten frame ran still belongs to the session.
    frame="INTEGER",
    unique=("kernel", "serial"),
    indexes={
        "journal_by_session": "(session, number, size)",
        "journal_by_frame": "(frame, number) WHERE frame is not null",
    },
)

attachments = Table(
    "attachments",
    id="TEXT NOT NULL PRIMARY KEY",
    session=OF_SESSION,
    mode="TEXT NOT NULL",
    key_digest="TEXT NOT NULL",
    created_at="FLOAT NOT NULL",
    ended_at="FLOAT",
    # Set if someone revoked the attachment while the session lives.
    revoked="BOOLEAN NOT NULL",
    indexes={"attachments_by_session": "(session, ended_at)"},
)

attachment_events = Table(
    "attachment_events",
    number="INTEGER NOT NULL PRIMARY KEY",
    attachment="TEXT NOT NULL",
    session=OF_SESSION,
    event="TEXT NOT NULL",
    at="FLOAT NOT NULL",
    indexes={"attachment_events_by_session": "(session, number)"},
)

turns = Table(
    "turns",
    number=NUMBERED,
    session=OF_SESSION,
    model="TEXT NOT NULL",
    # What the model was told since its previous turn: a list of messages. A run starts with the system message.
    said="JSON NOT NULL",
    reply="TEXT NOT NULL",
    final="TEXT",
    input_tokens="INTEGER NOT NULL",
    output_tokens="INTEGER NOT NULL",
    started_at="FLOAT NOT NULL",
    ended_at="FLOAT NOT NULL",
    # What the row counts against the bounds: bytes of the messages on both sides.
    size="INTEGER NOT NULL",
    # In US dollars.
    cost="FLOAT",
    # The session's variables after the turn.
    variables="JSON",
    indexes={"turns_by_session": "(session, number, size)"},
)

ended_runs = Table(
    "run_records",
    # For an ended session in which a model worked. It outlives the session, so its key is not a foreign key.
    number=NUMBERED,
    key="INTEGER NOT NULL UNIQUE",
    # The key of the session that it was forked from.
    parent="INTEGER",
    ended_at="FLOAT NOT NULL",
    # The runs as JSON, one line each; and the whole record, as compressed JSON.
    lines="JSON NOT NULL",
    record="BLOB NOT NULL",
    # What the row counts against the bound: bytes of the record.
    size="INTEGER NOT NULL",
    indexes={"run_records_by_parent": "(parent)"},
)

counters = Table(
    "counters",
    # Counters outlive the rows that they number, and count per session name: no id is ever reused, so a late answer
    # to a query of an ended session cannot match a query of the next session with that name.
    scope="TEXT NOT NULL PRIMARY KEY",
    value="INTEGER NOT NULL",
)
