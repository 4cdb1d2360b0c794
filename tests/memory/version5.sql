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
	unsaved TEXT,
	policy_text TEXT,
	policy_digest TEXT,
	family_text TEXT,
	family_digest TEXT,
	PRIMARY KEY ("key"),
	UNIQUE (id)
);
CREATE TABLE endings (
	id TEXT NOT NULL,
	how TEXT NOT NULL CHECK (how in ('ended', 'expired')),
	at FLOAT NOT NULL,
	went JSON,
	PRIMARY KEY (id)
);
CREATE TABLE writable_folders (
	path TEXT NOT NULL,
	PRIMARY KEY (path)
);
CREATE TABLE known_answers (
	"key" TEXT NOT NULL,
	answer TEXT NOT NULL,
	used_at FLOAT NOT NULL,
	PRIMARY KEY ("key")
);
CREATE TABLE run_records (
	number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	"key" INTEGER NOT NULL,
	parent INTEGER,
	ended_at FLOAT NOT NULL,
	lines JSON NOT NULL,
	record BLOB NOT NULL,
	size INTEGER NOT NULL,
	UNIQUE ("key")
);
CREATE TABLE counters (
	scope TEXT NOT NULL,
	value INTEGER NOT NULL,
	PRIMARY KEY (scope)
);
CREATE TABLE lock_projects (
	root TEXT NOT NULL,
	tree TEXT NOT NULL,
	version INTEGER NOT NULL,
	digest TEXT NOT NULL,
	files INTEGER NOT NULL,
	made_at FLOAT NOT NULL,
	PRIMARY KEY (root)
);
CREATE TABLE lock_aliases (
	root TEXT NOT NULL,
	id TEXT NOT NULL,
	used_at FLOAT NOT NULL,
	PRIMARY KEY (root, id)
);
CREATE TABLE lock_texts (
	root TEXT NOT NULL,
	section TEXT NOT NULL,
	version INTEGER NOT NULL,
	digest TEXT NOT NULL,
	is_whole BOOLEAN NOT NULL,
	PRIMARY KEY (root, section)
);
CREATE TABLE holders (
	id TEXT NOT NULL,
	anchor TEXT NOT NULL CHECK (anchor in ('connection', 'process', 'time')),
	proof TEXT NOT NULL,
	kin TEXT,
	label TEXT NOT NULL,
	worktree TEXT NOT NULL,
	beat_at FLOAT NOT NULL,
	expires_at FLOAT,
	gone_at FLOAT,
	PRIMARY KEY (id)
);
CREATE TABLE machine (
	name TEXT NOT NULL,
	value TEXT NOT NULL,
	PRIMARY KEY (name)
);
CREATE TABLE session_metrics (
	session_id TEXT NOT NULL,
	batches_completed INTEGER NOT NULL,
	last_batch_size INTEGER NOT NULL,
	last_batch_outcome TEXT NOT NULL,
	created_at FLOAT NOT NULL,
	tree TEXT NOT NULL,
	batches INTEGER NOT NULL,
	tasks INTEGER NOT NULL,
	interrupted INTEGER NOT NULL,
	next_size INTEGER NOT NULL,
	PRIMARY KEY (session_id)
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
CREATE TABLE inherited_queries (
	session INTEGER NOT NULL,
	"query" TEXT NOT NULL,
	asked_in INTEGER NOT NULL,
	PRIMARY KEY (session, "query"),
	FOREIGN KEY(session) REFERENCES sessions ("key") ON DELETE CASCADE
);
CREATE TABLE budgets (
	session INTEGER NOT NULL,
	calls INTEGER NOT NULL,
	tokens INTEGER NOT NULL,
	cost FLOAT NOT NULL,
	milliseconds INTEGER NOT NULL,
	PRIMARY KEY (session),
	FOREIGN KEY(session) REFERENCES sessions ("key") ON DELETE CASCADE
);
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
	frame INTEGER,
	UNIQUE (kernel, serial),
	FOREIGN KEY(session) REFERENCES sessions ("key") ON DELETE CASCADE
);
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
CREATE TABLE attachment_events (
	number INTEGER NOT NULL,
	attachment TEXT NOT NULL,
	session INTEGER NOT NULL,
	event TEXT NOT NULL,
	at FLOAT NOT NULL,
	PRIMARY KEY (number),
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
	cost FLOAT,
	variables JSON,
	FOREIGN KEY(session) REFERENCES sessions ("key") ON DELETE CASCADE
);
CREATE TABLE frames (
	"key" INTEGER NOT NULL,
	tree TEXT NOT NULL,
	parent INTEGER,
	depth INTEGER NOT NULL,
	kind TEXT NOT NULL CHECK (kind in ('session', 'task', 'story', 'epic')),
	goal TEXT NOT NULL,
	status TEXT NOT NULL CHECK (status in ('planned', 'in_progress', 'completed', 'failed', 'blocked', 'invalidated')),
	author TEXT NOT NULL,
	session INTEGER,
	forked_from INTEGER,
	created_at FLOAT NOT NULL,
	started_at FLOAT,
	ended_at FLOAT,
	ended INTEGER,
	cause INTEGER,
	folded INTEGER NOT NULL,
	folded_count INTEGER NOT NULL,
	log TEXT,
	priority INTEGER DEFAULT 500 NOT NULL,
	waiting INTEGER DEFAULT 0 NOT NULL,
	closed_above INTEGER DEFAULT 0 NOT NULL,
	dependents INTEGER DEFAULT 0 NOT NULL,
	open_children INTEGER DEFAULT 0 NOT NULL,
	holder TEXT,
	fence INTEGER DEFAULT 0 NOT NULL,
	freed_at FLOAT,
	PRIMARY KEY ("key"),
	FOREIGN KEY(parent) REFERENCES frames ("key") ON DELETE CASCADE,
	FOREIGN KEY(session) REFERENCES sessions ("key") ON DELETE SET NULL,
	FOREIGN KEY(forked_from) REFERENCES sessions ("key") ON DELETE SET NULL
);
CREATE TABLE grants (
	handle TEXT NOT NULL,
	audience TEXT NOT NULL CHECK (audience in ('session', 'workspace', 'everyone')),
	subject TEXT NOT NULL,
	PRIMARY KEY (handle, audience, subject),
	FOREIGN KEY(handle) REFERENCES handles (handle) ON DELETE CASCADE
);
CREATE TABLE frame_edges (
	frame INTEGER NOT NULL,
	target INTEGER NOT NULL,
	type TEXT NOT NULL CHECK (type in ('blocks', 'waits_for', 'on_failure', 'found_in', 'supersedes')),
	resolved BOOLEAN NOT NULL,
	PRIMARY KEY (frame, target, type),
	FOREIGN KEY(frame) REFERENCES frames ("key") ON DELETE CASCADE,
	FOREIGN KEY(target) REFERENCES frames ("key") ON DELETE CASCADE
);
CREATE TABLE frame_events (
	number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	frame INTEGER NOT NULL,
	at FLOAT NOT NULL,
	author TEXT NOT NULL,
	verb TEXT NOT NULL,
	data JSON NOT NULL,
	FOREIGN KEY(frame) REFERENCES frames ("key") ON DELETE CASCADE
);
CREATE TABLE frame_compactions (
	number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	frame INTEGER NOT NULL,
	source TEXT NOT NULL CHECK (source in ('caller', 'extract', 'model')),
	text TEXT NOT NULL,
	artifacts JSON NOT NULL,
	decisions JSON NOT NULL,
	at FLOAT NOT NULL,
	FOREIGN KEY(frame) REFERENCES frames ("key") ON DELETE CASCADE
);
CREATE TABLE frame_summaries (
	session INTEGER NOT NULL,
	"query" TEXT NOT NULL,
	frame INTEGER NOT NULL,
	compaction INTEGER NOT NULL,
	PRIMARY KEY (session, "query"),
	FOREIGN KEY(session) REFERENCES sessions ("key") ON DELETE CASCADE,
	FOREIGN KEY(frame) REFERENCES frames ("key") ON DELETE CASCADE
);
CREATE TABLE frame_handovers (
	frame INTEGER NOT NULL,
	name TEXT NOT NULL,
	target INTEGER NOT NULL,
	digest TEXT NOT NULL,
	size INTEGER NOT NULL,
	form TEXT NOT NULL CHECK (form in ('text', 'object')),
	delivered_at FLOAT,
	PRIMARY KEY (frame, name),
	FOREIGN KEY(frame) REFERENCES frames ("key") ON DELETE CASCADE,
	FOREIGN KEY(target) REFERENCES frames ("key") ON DELETE CASCADE
);
CREATE TABLE frame_messages (
	number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	frame INTEGER NOT NULL,
	message JSON NOT NULL,
	size INTEGER NOT NULL,
	at FLOAT NOT NULL,
	FOREIGN KEY(frame) REFERENCES frames ("key") ON DELETE CASCADE
);
CREATE TABLE frame_operations (
	number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	frame INTEGER NOT NULL,
	what TEXT NOT NULL CHECK (what in ('push', 'log', 'notebook', 'end')),
	of_session INTEGER,
	FOREIGN KEY(frame) REFERENCES frames ("key") ON DELETE CASCADE
);
CREATE TABLE lock_frame_versions (
	frame INTEGER NOT NULL,
	root TEXT NOT NULL,
	began INTEGER NOT NULL,
	seen INTEGER NOT NULL,
	ended INTEGER,
	changed JSON,
	PRIMARY KEY (frame),
	FOREIGN KEY(frame) REFERENCES frames ("key") ON DELETE CASCADE
);
CREATE TABLE frame_items (
	frame INTEGER NOT NULL,
	type TEXT NOT NULL,
	description TEXT NOT NULL,
	acceptance TEXT NOT NULL,
	PRIMARY KEY (frame),
	FOREIGN KEY(frame) REFERENCES frames ("key") ON DELETE CASCADE
);
CREATE TABLE frame_paths (
	frame INTEGER NOT NULL,
	path TEXT NOT NULL,
	PRIMARY KEY (frame, path),
	FOREIGN KEY(frame) REFERENCES frames ("key") ON DELETE CASCADE
);
CREATE TABLE frame_progress (
	frame INTEGER NOT NULL,
	data JSON NOT NULL,
	updated_at FLOAT NOT NULL,
	PRIMARY KEY (frame),
	FOREIGN KEY(frame) REFERENCES frames ("key") ON DELETE CASCADE
);
CREATE TABLE frame_handoffs (
	frame INTEGER NOT NULL,
	status TEXT NOT NULL CHECK (status in ('PASS', 'FAIL', 'BLOCKED')),
	summary TEXT NOT NULL,
	files JSON NOT NULL,
	decisions JSON NOT NULL,
	details TEXT,
	size INTEGER NOT NULL,
	created_at FLOAT NOT NULL,
	compacted_at FLOAT,
	archived_at FLOAT,
	PRIMARY KEY (frame),
	FOREIGN KEY(frame) REFERENCES frames ("key") ON DELETE CASCADE
);
CREATE TABLE frame_aliases (
	tree TEXT NOT NULL,
	source TEXT NOT NULL,
	alias TEXT NOT NULL,
	frame INTEGER NOT NULL,
	data JSON NOT NULL,
	PRIMARY KEY (tree, source, alias),
	FOREIGN KEY(frame) REFERENCES frames ("key") ON DELETE CASCADE
);
CREATE TABLE work_chains (
	number INTEGER NOT NULL,
	tree TEXT NOT NULL,
	scope INTEGER,
	loop TEXT NOT NULL,
	ended_at FLOAT,
	data JSON NOT NULL,
	PRIMARY KEY (number),
	FOREIGN KEY(scope) REFERENCES frames ("key") ON DELETE CASCADE
);
CREATE TABLE work_chain_runs (
	chain INTEGER NOT NULL,
	number INTEGER NOT NULL,
	frame INTEGER NOT NULL,
	ended_at FLOAT,
	data JSON NOT NULL,
	PRIMARY KEY (chain, number),
	FOREIGN KEY(chain) REFERENCES work_chains (number) ON DELETE CASCADE,
	FOREIGN KEY(frame) REFERENCES frames ("key") ON DELETE CASCADE
);
CREATE INDEX sessions_by_use ON sessions (state, last_used_at);
CREATE INDEX endings_by_time ON endings (at);
CREATE INDEX known_answers_by_use ON known_answers (used_at);
CREATE INDEX run_records_by_parent ON run_records (parent);
CREATE INDEX lock_projects_by_tree ON lock_projects (tree);
CREATE INDEX lock_aliases_by_use ON lock_aliases (used_at);
CREATE INDEX lock_texts_by_digest ON lock_texts (digest);
CREATE INDEX holders_by_proof ON holders (proof);
CREATE INDEX holders_that_live ON holders (id) WHERE gone_at is null;
CREATE INDEX session_metrics_by_tree ON session_metrics (tree, created_at);
CREATE INDEX contexts_by_digest ON contexts (digest);
CREATE INDEX handles_by_digest ON handles (digest);
CREATE INDEX handles_by_session ON handles (session, name);
CREATE INDEX queries_by_state ON queries (session, state);
CREATE INDEX inherited_queries_by_asker ON inherited_queries (asked_in, "query");
CREATE INDEX journal_by_frame ON journal (frame, number) WHERE frame is not null;
CREATE INDEX journal_by_session ON journal (session, number, size);
CREATE INDEX attachments_by_session ON attachments (session, ended_at);
CREATE INDEX attachment_events_by_session ON attachment_events (session, number);
CREATE INDEX turns_by_session ON turns (session, number, size);
CREATE INDEX frames_by_session ON frames (session) WHERE session is not null;
CREATE INDEX frames_by_end ON frames (parent, ended) WHERE ended is not null;
CREATE UNIQUE INDEX frames_root ON frames (tree) WHERE parent is null;
CREATE INDEX frames_by_parent ON frames (parent, status, "key");
CREATE INDEX frames_by_holder ON frames (holder) WHERE holder is not null;
CREATE INDEX frames_ready ON frames (tree, (priority + 50 * dependents) DESC, created_at) WHERE kind = 'task' AND waiting = 0 AND closed_above = 0 AND open_children = 0 AND (status = 'planned' OR freed_at IS NOT NULL);
CREATE INDEX frames_by_cause ON frames (cause) WHERE cause is not null;
CREATE INDEX frame_edges_by_target ON frame_edges (target, type, resolved);
CREATE INDEX frame_events_by_frame ON frame_events (frame, number);
CREATE INDEX frame_compactions_by_frame ON frame_compactions (frame, number);
CREATE INDEX frame_summaries_by_frame ON frame_summaries (frame);
CREATE INDEX frame_handovers_by_digest ON frame_handovers (digest);
CREATE INDEX frame_handovers_by_target ON frame_handovers (target) WHERE delivered_at is null;
CREATE INDEX frame_messages_by_frame ON frame_messages (frame, number, size);
CREATE INDEX frame_operations_by_frame ON frame_operations (frame, what);
CREATE INDEX frame_paths_by_path ON frame_paths (path);
CREATE INDEX frame_handoffs_by_details ON frame_handoffs (details) WHERE details is not null;
CREATE INDEX frame_aliases_by_frame ON frame_aliases (frame);
CREATE INDEX work_chains_by_tree ON work_chains (tree, number);
CREATE INDEX work_chain_runs_by_frame ON work_chain_runs (frame);
PRAGMA user_version=5;
