-- The tables of version 1 of the database, in which rows were keyed by the names of sessions.
CREATE TABLE counters (
    scope TEXT NOT NULL,
    value INTEGER NOT NULL,
    PRIMARY KEY (scope)
);
CREATE TABLE known_answers (
    "key" TEXT NOT NULL,
    answer TEXT NOT NULL,
    used_at FLOAT NOT NULL,
    PRIMARY KEY ("key")
);
CREATE TABLE sessions (
    id TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state in ('active', 'expired', 'ended')),
    workspace TEXT NOT NULL,
    policy TEXT NOT NULL,
    idle_seconds FLOAT NOT NULL,
    created_at FLOAT NOT NULL,
    last_used_at FLOAT NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE contexts (
    session TEXT NOT NULL,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    size INTEGER NOT NULL,
    line_count INTEGER NOT NULL,
    type TEXT NOT NULL,
    metadata JSON NOT NULL,
    origin TEXT NOT NULL CHECK (origin in ('loaded', 'attached', 'output')),
    revision INTEGER NOT NULL,
    created_at FLOAT NOT NULL,
    last_accessed_at FLOAT NOT NULL,
    PRIMARY KEY (session, name),
    FOREIGN KEY(session) REFERENCES sessions (id)
);
CREATE TABLE door_events (
    number INTEGER NOT NULL,
    door TEXT NOT NULL,
    session TEXT NOT NULL,
    event TEXT NOT NULL,
    at FLOAT NOT NULL,
    PRIMARY KEY (number),
    FOREIGN KEY(session) REFERENCES sessions (id)
);
CREATE TABLE doors (
    id TEXT NOT NULL,
    session TEXT NOT NULL,
    mode TEXT NOT NULL,
    key_digest TEXT NOT NULL,
    created_at FLOAT NOT NULL,
    ended_at FLOAT,
    revoked BOOLEAN NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(session) REFERENCES sessions (id)
);
CREATE TABLE forks (
    session TEXT NOT NULL,
    parent TEXT NOT NULL,
    PRIMARY KEY (session),
    FOREIGN KEY(session) REFERENCES sessions (id),
    FOREIGN KEY(parent) REFERENCES sessions (id)
);
CREATE TABLE handles (
    handle TEXT NOT NULL,
    session TEXT NOT NULL,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    size INTEGER NOT NULL,
    line_count INTEGER NOT NULL,
    type TEXT NOT NULL,
    metadata JSON NOT NULL,
    charged BOOLEAN NOT NULL,
    created_at FLOAT NOT NULL,
    PRIMARY KEY (handle),
    FOREIGN KEY(session) REFERENCES sessions (id)
);
CREATE TABLE journal (
    number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    session TEXT NOT NULL,
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
    door TEXT,
    displays JSON,
    UNIQUE (kernel, serial),
    FOREIGN KEY(session) REFERENCES sessions (id)
);
CREATE TABLE queries (
    session TEXT NOT NULL,
    id TEXT NOT NULL,
    ordinal INTEGER NOT NULL,
    prompt TEXT NOT NULL,
    model TEXT,
    state TEXT NOT NULL CHECK (state in ('pending', 'answered', 'failed', 'cancelled')),
    answer TEXT,
    error TEXT,
    created_at FLOAT NOT NULL,
    settled_at FLOAT,
    PRIMARY KEY (session, id),
    FOREIGN KEY(session) REFERENCES sessions (id)
);
CREATE TABLE query_details (
    session TEXT NOT NULL,
    "query" TEXT NOT NULL,
    mode TEXT NOT NULL,
    form JSON,
    answered_by TEXT,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cost FLOAT NOT NULL,
    recursive BOOLEAN,
    PRIMARY KEY (session, "query"),
    FOREIGN KEY(session) REFERENCES sessions (id)
);
CREATE TABLE turns (
    number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    session TEXT NOT NULL,
    model TEXT NOT NULL,
    said JSON NOT NULL,
    reply TEXT NOT NULL,
    final TEXT,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    started_at FLOAT NOT NULL,
    ended_at FLOAT NOT NULL,
    size INTEGER NOT NULL,
    FOREIGN KEY(session) REFERENCES sessions (id)
);
CREATE TABLE grants (
    handle TEXT NOT NULL,
    audience TEXT NOT NULL CHECK (audience in ('session', 'workspace', 'everyone')),
    subject TEXT NOT NULL,
    PRIMARY KEY (handle, audience, subject),
    FOREIGN KEY(handle) REFERENCES handles (handle) ON DELETE CASCADE
);
PRAGMA user_version=1;
