-- Children, messages and what a run waits for. Runs of before have none of these.

ALTER TABLE runtrue_runs ADD COLUMN parent_id TEXT;
ALTER TABLE runtrue_runs ADD COLUMN parent_branch TEXT CHECK ((parent_branch IS NULL) = (parent_id IS NULL));
ALTER TABLE runtrue_runs ADD COLUMN parent_ordinal INTEGER CHECK ((parent_ordinal IS NULL) = (parent_id IS NULL));
ALTER TABLE runtrue_runs ADD COLUMN parent_cancels INTEGER NOT NULL DEFAULT 0 CHECK (parent_cancels IN (0, 1));
ALTER TABLE runtrue_runs ADD COLUMN deadline_at INTEGER;

-- How many open waits of this run are for a child that has not ended: raised when such a wait is opened, lowered when
-- the child ends (and not once more when the wait is met), or when the wait is closed before.
ALTER TABLE runtrue_runs ADD COLUMN children_left INTEGER NOT NULL DEFAULT 0
    CHECK (children_left >= 0 AND (finished_at IS NULL OR children_left = 0));

-- Whether the run, as it parked last, goes on when any child ends; else when the last one ends, or one without success.
ALTER TABLE runtrue_runs ADD COLUMN any_child_wakes INTEGER NOT NULL DEFAULT 1 CHECK (any_child_wakes IN (0, 1));

CREATE INDEX runtrue_runs_parent ON runtrue_runs (parent_id, created_at, id) WHERE parent_id IS NOT NULL;

-- For the sweeper, which must not look at finished runs.
CREATE INDEX runtrue_runs_tied ON runtrue_runs (parent_id) WHERE parent_cancels = 1 AND finished_at IS NULL;
CREATE INDEX runtrue_runs_deadline ON runtrue_runs (deadline_at) WHERE deadline_at IS NOT NULL AND finished_at IS NULL;

-- The digest of the code that did not fit the history; empty for holds of other kinds.
ALTER TABLE runtrue_holds ADD COLUMN code_digest TEXT NOT NULL DEFAULT '';

-- `subject` is the topic of a message, or the id of the run whose end is waited for.
CREATE TABLE runtrue_waits (
    run_id TEXT NOT NULL,
    branch TEXT NOT NULL,
    ordinal INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('receive', 'child')),
    name TEXT NOT NULL,
    subject TEXT NOT NULL,
    opened_at INTEGER NOT NULL,
    deadline_at INTEGER,
    closed_at INTEGER,
    outcome TEXT CHECK (outcome IN ('met', 'expired', 'moot')),
    CHECK ((closed_at IS NULL) = (outcome IS NULL)),
    PRIMARY KEY (run_id, branch, ordinal)
) WITHOUT ROWID;
CREATE INDEX runtrue_waits_open ON runtrue_waits (run_id, opened_at) WHERE closed_at IS NULL;
CREATE INDEX runtrue_waits_child ON runtrue_waits (subject) WHERE kind = 'child' AND closed_at IS NULL;
CREATE INDEX runtrue_waits_moot ON runtrue_waits (run_id) WHERE kind = 'child' AND outcome = 'moot';

-- `seq` is that of the event `message`. The place is that of the wait which has taken the message.
CREATE TABLE runtrue_messages (
    run_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    topic TEXT NOT NULL,
    request_id TEXT NOT NULL,
    sent_by TEXT NOT NULL,
    sent_at INTEGER NOT NULL,
    received_at INTEGER,
    received_branch TEXT,
    received_ordinal INTEGER,
    body BLOB NOT NULL,
    CHECK ((received_at IS NULL) = (received_branch IS NULL) AND (received_at IS NULL) = (received_ordinal IS NULL)),
    PRIMARY KEY (run_id, seq)
) WITHOUT ROWID;
CREATE UNIQUE INDEX runtrue_messages_request ON runtrue_messages (run_id, request_id);
CREATE INDEX runtrue_messages_kept ON runtrue_messages (run_id, topic, seq) WHERE received_at IS NULL;

CREATE TABLE runtrue_published (
    run_id TEXT NOT NULL,
    key TEXT NOT NULL,
    at INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (run_id, key)
) WITHOUT ROWID;
