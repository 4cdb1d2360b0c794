-- The tables of version 3 of the database.
CREATE TABLE counters (
    scope TEXT NOT NULL,
    value INTEGER NOT NULL,
    PRIMARY KEY (scope)
);
CREATE TABLE endings (
    id TEXT NOT NULL,
    how TEXT NOT NULL CHECK (how in ('ended', 'expired')),
    at FLOAT NOT NULL,
    went JSON,
    PRIMARY KEY (id)
);
CREATE INDEX endings_by_time ON endings (at);
CREATE TABLE known_answers (
    "key" TEXT NOT NULL,
    answer TEXT NOT NULL,
    used_at FLOAT NOT NULL,
    PRIMARY KEY ("key")
);
CREATE INDEX known_answers_by_use ON known_answers (used_at);
CREATE TABLE sessions (
    "key" INTEGER NOT NULL,
    id TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state in ('active', 'resting')),
    workspace TEXT NOT NULL,
    policy TEXT NOT NULL,
    idle_seconds FLOAT NOT NULL,
    created_at FLOAT NOT NULL,
    last_used_at FLOAT NOT NULL,
    kept_until FLOAT,
    policy_text TEXT,
    policy_digest TEXT,
    family_text TEXT,
    family_digest TEXT,
    PRIMARY KEY ("key"),
    UNIQUE (id)
);
CREATE INDEX sessions_by_use ON sessions (state, last_used_at);
CREATE TABLE writable_folders (
    path TEXT NOT NULL,
    PRIMARY KEY (path)
);
CREATE TABLE attachment_events (
    number INTEGER NOT NULL,
    attachment TEXT NOT NULL,
    session INTEGER NOT NULL,
    event TEXT NOT NULL,
    at FLOAT NOT NULL,
    PRIMARY KEY (number),
    FOREIGN KEY(session) REFERENCES sessions ("key") ON DELETE CASCADE
);
CREATE INDEX attachment_events_by_session ON attachment_events (session, number);
CREATE TABLE attachments (
    id TEXT NOT NULL,
    session INTEGER NOT NULL,
    mode TEXT NOT NULL,
    key_digest TEXT NOT NULL,
    created_at FLOAT NOT NULL,
    ended_at FLOAT,
    revoked BOOLEAN NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(session) REFERENCES sessions ("key") ON DELETE CASCADE
);
CREATE INDEX attachments_by_session ON attachments (session, ended_at);
CREATE TABLE budgets (
    session INTEGER NOT NULL,
    calls INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    cost FLOAT NOT NULL,
    milliseconds INTEGER NOT NULL,
    PRIMARY KEY (session),
    FOREIGN KEY(session) REFERENCES sessions ("key") ON DELETE CASCADE
);
CREATE TABLE contexts (
    session INTEGER NOT NULL,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    size INTEGER NOT NULL,
    line_count INTEGER NOT NULL,
    type TEXT NOT NULL,
    metadata JSON NOT NULL,
    origin TEXT NOT NULL CHECK (origin in ('loaded', 'attached', 'output')),
    handle TEXT,
    revision INTEGER NOT NULL,
    created_at FLOAT NOT NULL,
    last_accessed_at FLOAT NOT NULL,
    PRIMARY KEY (session, name),
    FOREIGN KEY(session) REFERENCES sessions ("key") ON DELETE CASCADE
);
CREATE INDEX contexts_by_digest ON contexts (digest);
CREATE TABLE forks (
    session INTEGER NOT NULL,
    parent INTEGER NOT NULL,
    PRIMARY KEY (session),
    FOREIGN KEY(session) REFERENCES sessions ("key") ON DELETE CASCADE,
    FOREIGN KEY(parent) REFERENCES sessions ("key") ON DELETE CASCADE
);
CREATE TABLE handles (
    handle TEXT NOT NULL,
    session INTEGER NOT NULL,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    size INTEGER NOT NULL,
    line_count INTEGER NOT NULL,
    type TEXT NOT NULL,
    metadata JSON NOT NULL,
    charged BOOLEAN NOT NULL,
    created_at FLOAT NOT NULL,
    PRIMARY KEY (handle),
    FOREIGN KEY(session) REFERENCES sessions ("key") ON DELETE CASCADE
);
CREATE INDEX handles_by_digest ON handles (digest);
CREATE INDEX handles_by_session ON handles (session, name);
CREATE TABLE journal (
    number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    session INTEGER NOT NULL,
    author TEXT NOT NULL CHECK (author in ('agent', 'notebook')),
    code TEXT NOT NULL,
    started_at FLOAT NOT NULL,
    ended_at FLOAT NOT NULL,
    status TEXT NOT NULL,
    output TEXT NOT NULL,
    queries JSON NOT NULL,
    size INTEGER NOT NULL,
    kernel TEXT,
    serial INTEGER,
    attachment TEXT,
    displays JSON,
    UNIQUE (kernel, serial),
    FOREIGN KEY(session) REFERENCES sessions ("key") ON DELETE CASCADE
);
CREATE INDEX journal_by_session ON journal (session, number, size);
CREATE TABLE queries (
    session INTEGER NOT NULL,
    id TEXT NOT NULL,
    ordinal INTEGER NOT NULL,
    prompt TEXT NOT NULL,
    model TEXT,
    state TEXT NOT NULL CHECK (state in ('pending', 'answered', 'failed', 'cancelled')),
    answer TEXT,
    error TEXT,
    created_at FLOAT NOT NULL,
    resolved_at FLOAT,
    PRIMARY KEY (session, id),
    FOREIGN KEY(session) REFERENCES sessions ("key") ON DELETE CASCADE
);
CREATE INDEX queries_by_state ON queries (session, state);
CREATE TABLE query_details (
    session INTEGER NOT NULL,
    "query" TEXT NOT NULL,
    mode TEXT NOT NULL,
    form JSON,
    answered_by TEXT,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cost FLOAT NOT NULL,
    recursive BOOLEAN,
    asked_by TEXT,
    number INTEGER,
    PRIMARY KEY (session, "query"),
    FOREIGN KEY(session) REFERENCES sessions ("key") ON DELETE CASCADE
);
CREATE TABLE turns (
    number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    session INTEGER NOT NULL,
    model TEXT NOT NULL,
    said JSON NOT NULL,
    reply TEXT NOT NULL,
    final TEXT,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    started_at FLOAT NOT NULL,
    ended_at FLOAT NOT NULL,
    size INTEGER NOT NULL,
    FOREIGN KEY(session) REFERENCES sessions ("key") ON DELETE CASCADE
);
CREATE INDEX turns_by_session ON turns (session, number, size);
CREATE TABLE grants (
    handle TEXT NOT NULL,
    audience TEXT NOT NULL CHECK (audience in ('session', 'workspace', 'everyone')),
    subject TEXT NOT NULL,
    PRIMARY KEY (handle, audience, subject),
    FOREIGN KEY(handle) REFERENCES handles (handle) ON DELETE CASCADE
);
PRAGMA user_version=3;
