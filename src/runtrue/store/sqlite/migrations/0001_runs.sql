-- Times are microseconds since 1970, UTC. No trigger or check calls a function that plain SQLite does not have,
-- so that the sqlite3 shell can open this file.

-- The hot row, kept narrow. Nothing that changes with every step stands in an index.
CREATE TABLE runtrue_runs (
    id TEXT NOT NULL PRIMARY KEY,
    status TEXT NOT NULL CHECK (status IN (
        'pending', 'running', 'waiting', 'pausing', 'paused', 'cancelling', 'completed', 'failed', 'cancelled')),
    epoch INTEGER NOT NULL DEFAULT 0,
    worker_id TEXT,
    wakeups INTEGER NOT NULL DEFAULT 0,
    open_run_holds INTEGER NOT NULL DEFAULT 0 CHECK (open_run_holds >= 0),
    event_seq INTEGER NOT NULL DEFAULT 0,
    steps_done INTEGER NOT NULL DEFAULT 0,
    losses INTEGER NOT NULL DEFAULT 0,
    attempt INTEGER NOT NULL DEFAULT 1,
    history_digest INTEGER NOT NULL DEFAULT 0,
    updated_at INTEGER NOT NULL,
    workflow TEXT NOT NULL,
    version TEXT NOT NULL,
    priority INTEGER NOT NULL CHECK (priority BETWEEN -2147483648 AND 2147483647),
    ready_at INTEGER NOT NULL,
    idempotency_key TEXT,
    request_verb TEXT CHECK (request_verb IN ('pause', 'cancel', 'terminate')),
    request_by TEXT,
    request_at INTEGER,
    request_reason TEXT,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    finished_at INTEGER,
    CHECK ((worker_id IS NOT NULL) = (status IN ('running', 'pausing', 'cancelling'))),
    CHECK ((finished_at IS NOT NULL) = (status IN ('completed', 'failed', 'cancelled'))),
    CHECK (finished_at IS NULL OR open_run_holds = 0),
    CHECK (status <> 'paused' OR open_run_holds > 0),
    CHECK (status <> 'pausing' OR request_verb IS 'pause'),
    CHECK (status <> 'cancelling' OR request_verb IS 'cancel'),
    CHECK ((request_verb IS NULL) = (request_at IS NULL)
        AND (request_verb IS NULL) = (request_by IS NULL) AND (request_verb IS NULL) = (request_reason IS NULL))
) WITHOUT ROWID;

CREATE INDEX runtrue_runs_claim ON runtrue_runs (workflow, version, priority, ready_at, id)
    WHERE status IN ('pending', 'waiting');
CREATE INDEX runtrue_runs_worker ON runtrue_runs (worker_id) WHERE worker_id IS NOT NULL;
CREATE INDEX runtrue_runs_status ON runtrue_runs (status, created_at, id);
CREATE INDEX runtrue_runs_workflow ON runtrue_runs (workflow, created_at, id);
CREATE INDEX runtrue_runs_created ON runtrue_runs (created_at, id);
CREATE UNIQUE INDEX runtrue_runs_key ON runtrue_runs (workflow, idempotency_key) WHERE idempotency_key IS NOT NULL;

CREATE TABLE runtrue_run_payloads (
    run_id TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('input', 'output', 'error', 'tags')),
    body BLOB NOT NULL,
    PRIMARY KEY (run_id, kind)
) WITHOUT ROWID;

CREATE TABLE runtrue_run_progress (
    run_id TEXT NOT NULL PRIMARY KEY,
    done REAL,
    total REAL,
    note TEXT NOT NULL,
    at INTEGER NOT NULL
) WITHOUT ROWID;

-- The place of a call is its key; name and kind are compared, not part of it. The digest stands before the bodies so
-- that a recount of the history reads no overflow page.
CREATE TABLE runtrue_steps (
    run_id TEXT NOT NULL,
    branch TEXT NOT NULL,
    ordinal INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    digest INTEGER NOT NULL,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    finished_at INTEGER NOT NULL,
    wake_at INTEGER,
    output BLOB,
    error BLOB,
    PRIMARY KEY (run_id, branch, ordinal)
) WITHOUT ROWID;

CREATE TABLE runtrue_attempts (
    run_id TEXT NOT NULL,
    branch TEXT NOT NULL,
    ordinal INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    name TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    failed_at INTEGER NOT NULL,
    next_at INTEGER NOT NULL,
    error BLOB NOT NULL,
    PRIMARY KEY (run_id, branch, ordinal, attempt)
) WITHOUT ROWID;

CREATE TABLE runtrue_events (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    type TEXT NOT NULL,
    data TEXT NOT NULL
);
CREATE UNIQUE INDEX runtrue_events_seq ON runtrue_events (run_id, seq);

CREATE TABLE runtrue_holds (
    id TEXT NOT NULL PRIMARY KEY,
    run_id TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('operator', 'code_mismatch', 'keeps_losing_its_worker')),
    opened_at INTEGER NOT NULL,
    opened_by TEXT NOT NULL,
    reason TEXT NOT NULL,
    closed_at INTEGER,
    closed_by TEXT,
    outcome TEXT CHECK (outcome IN ('resumed', 'retry', 'fail', 'moot')),
    CHECK ((closed_at IS NULL) = (outcome IS NULL) AND (closed_at IS NULL) = (closed_by IS NULL))
) WITHOUT ROWID;
CREATE INDEX runtrue_holds_run ON runtrue_holds (run_id, opened_at);
CREATE INDEX runtrue_holds_open ON runtrue_holds (opened_at) WHERE closed_at IS NULL;
CREATE UNIQUE INDEX runtrue_holds_operator ON runtrue_holds (run_id) WHERE kind = 'operator' AND closed_at IS NULL;

CREATE TABLE runtrue_pauses (
    id TEXT NOT NULL PRIMARY KEY,
    run_id TEXT NOT NULL,
    paused_at INTEGER NOT NULL,
    ended_at INTEGER,
    snapshot_schema INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    wakeups INTEGER NOT NULL,
    steps_done INTEGER NOT NULL,
    digest INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX runtrue_pauses_run ON runtrue_pauses (run_id, paused_at);
CREATE UNIQUE INDEX runtrue_pauses_active ON runtrue_pauses (run_id) WHERE ended_at IS NULL;

-- Every command as it was given and met, refused ones too. `reply` is what a repeat of the request id is told, if it is
-- for the same: verb, pause_id, hold_id and value.
CREATE TABLE runtrue_commands (
    run_id TEXT NOT NULL,
    request_id TEXT NOT NULL,
    verb TEXT NOT NULL,
    pause_id TEXT,
    hold_id TEXT,
    value TEXT NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    at INTEGER NOT NULL,
    answer TEXT NOT NULL,
    status TEXT NOT NULL,
    reply TEXT NOT NULL,
    PRIMARY KEY (run_id, request_id)
) WITHOUT ROWID;

CREATE TABLE runtrue_workers (
    id TEXT NOT NULL PRIMARY KEY,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('alive', 'lost', 'stopped')),
    started_at INTEGER NOT NULL,
    heartbeat_at INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    loop_seen_at INTEGER NOT NULL,
    slots INTEGER NOT NULL,
    serves TEXT NOT NULL,
    in_flight TEXT NOT NULL DEFAULT '[]',
    stalled_in TEXT NOT NULL DEFAULT '',
    fenced_writes INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX runtrue_workers_lease ON runtrue_workers (lease_until) WHERE status = 'alive';
