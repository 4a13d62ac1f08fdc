-- A database as the first schema had it, with a run in every status: the dump of a file of that time.
BEGIN TRANSACTION;
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
INSERT INTO "runtrue_attempts" VALUES('keyed','',2,1,4,'charge',10,20,30,X'7B2274797065223A2258227D');
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
INSERT INTO "runtrue_commands" VALUES('cancelling','q-3','cancel',NULL,NULL,'','anna','because',1767225600000000,'requested','cancelling','{"found":true,"answer":"requested","changed":true,"status":"cancelling","request":{"verb":"cancel","by":"anna","at":1767225600000000,"reason":"because"},"open_holds":[],"still_held":false,"pause_id":null,"repeated":false,"refusal":"","request_conflict":false,"worker_id":"w"}');
INSERT INTO "runtrue_commands" VALUES('paused','q-2','pause',NULL,NULL,'','anna','because',1767225600000000,'done','paused','{"found":true,"answer":"done","changed":true,"status":"paused","request":{"verb":"pause","by":"anna","at":1767225600000000,"reason":"because"},"open_holds":[{"id":"h-b3558a3608b9","run_id":"paused","kind":"operator","opened_at":1767225600000000,"opened_by":"anna","reason":"because","closed_at":null,"closed_by":null,"outcome":null,"code_digest":""}],"still_held":false,"pause_id":"p-5c73c9e45774","repeated":false,"refusal":"","request_conflict":false,"worker_id":null}');
INSERT INTO "runtrue_commands" VALUES('pausing','q-1','pause',NULL,NULL,'','anna','because',1767225600000000,'requested','pausing','{"found":true,"answer":"requested","changed":true,"status":"pausing","request":{"verb":"pause","by":"anna","at":1767225600000000,"reason":"because"},"open_holds":[{"id":"h-12d143e8e087","run_id":"pausing","kind":"operator","opened_at":1767225600000000,"opened_by":"anna","reason":"because","closed_at":null,"closed_by":null,"outcome":null,"code_digest":""}],"still_held":false,"pause_id":null,"repeated":false,"refusal":"","request_conflict":false,"worker_id":"w"}');
CREATE TABLE runtrue_events (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    type TEXT NOT NULL,
    data TEXT NOT NULL
);
INSERT INTO "runtrue_events" VALUES(1,'pending',1,1767225600000000,'created','{"by":"","workflow":"flow","version":"1"}');
INSERT INTO "runtrue_events" VALUES(2,'running',1,1767225600000000,'created','{"by":"","workflow":"flow","version":"1"}');
INSERT INTO "runtrue_events" VALUES(3,'running',2,1767225600000000,'claimed','{"worker":"w","epoch":1,"attempt":1}');
INSERT INTO "runtrue_events" VALUES(4,'waiting',1,1767225600000000,'created','{"by":"","workflow":"flow","version":"1"}');
INSERT INTO "runtrue_events" VALUES(5,'waiting',2,1767225600000000,'claimed','{"worker":"w","epoch":1,"attempt":1}');
INSERT INTO "runtrue_events" VALUES(6,'waiting',4,1767225600000000,'waiting','{"worker":"w","epoch":1,"ready_at":1767229200000000}');
INSERT INTO "runtrue_events" VALUES(7,'pausing',1,1767225600000000,'created','{"by":"","workflow":"flow","version":"1"}');
INSERT INTO "runtrue_events" VALUES(8,'pausing',2,1767225600000000,'claimed','{"worker":"w","epoch":1,"attempt":1}');
INSERT INTO "runtrue_events" VALUES(9,'pausing',4,1767225600000000,'hold_opened','{"hold_id":"h-12d143e8e087","kind":"operator","by":"anna","reason":"because"}');
INSERT INTO "runtrue_events" VALUES(10,'pausing',5,1767225600000000,'pause_requested','{"by":"anna","reason":"because","cause":"command"}');
INSERT INTO "runtrue_events" VALUES(11,'paused',1,1767225600000000,'created','{"by":"","workflow":"flow","version":"1"}');
INSERT INTO "runtrue_events" VALUES(12,'paused',2,1767225600000000,'hold_opened','{"hold_id":"h-b3558a3608b9","kind":"operator","by":"anna","reason":"because"}');
INSERT INTO "runtrue_events" VALUES(13,'paused',3,1767225600000000,'paused','{"by":"anna","reason":"because","cause":"command","pause_id":"p-5c73c9e45774"}');
INSERT INTO "runtrue_events" VALUES(14,'cancelling',1,1767225600000000,'created','{"by":"","workflow":"flow","version":"1"}');
INSERT INTO "runtrue_events" VALUES(15,'cancelling',2,1767225600000000,'claimed','{"worker":"w","epoch":1,"attempt":1}');
INSERT INTO "runtrue_events" VALUES(16,'cancelling',4,1767225600000000,'cancel_requested','{"by":"anna","reason":"because","cause":"cancel"}');
INSERT INTO "runtrue_events" VALUES(17,'completed',1,1767225600000000,'created','{"by":"","workflow":"flow","version":"1"}');
INSERT INTO "runtrue_events" VALUES(18,'completed',2,1767225600000000,'claimed','{"worker":"w","epoch":1,"attempt":1}');
INSERT INTO "runtrue_events" VALUES(19,'completed',4,1767225600000000,'completed','{"worker":"w","epoch":1}');
INSERT INTO "runtrue_events" VALUES(20,'failed',1,1767225600000000,'created','{"by":"","workflow":"flow","version":"1"}');
INSERT INTO "runtrue_events" VALUES(21,'failed',2,1767225600000000,'claimed','{"worker":"w","epoch":1,"attempt":1}');
INSERT INTO "runtrue_events" VALUES(22,'failed',4,1767225600000000,'failed','{"worker":"w","epoch":1}');
INSERT INTO "runtrue_events" VALUES(23,'cancelled',1,1767225600000000,'created','{"by":"","workflow":"flow","version":"1"}');
INSERT INTO "runtrue_events" VALUES(24,'cancelled',2,1767225600000000,'claimed','{"worker":"w","epoch":1,"attempt":1}');
INSERT INTO "runtrue_events" VALUES(25,'cancelled',4,1767225600000000,'cancelled','{"worker":"w","epoch":1}');
INSERT INTO "runtrue_events" VALUES(26,'keyed',1,1767225600000000,'created','{"by":"","workflow":"flow","version":"1"}');
INSERT INTO "runtrue_events" VALUES(27,'keyed',2,1767225600000000,'claimed','{"worker":"w","epoch":1,"attempt":1}');
INSERT INTO "runtrue_events" VALUES(28,'keyed',5,1767225600000000,'hold_opened','{"hold_id":"h-2e73b1f1beac","kind":"code_mismatch","by":"w","reason":"the code is another"}');
INSERT INTO "runtrue_events" VALUES(29,'keyed',6,1767225600000000,'paused','{"worker":"w","epoch":1,"cause":"code_mismatch","reason":"the code is another","pause_id":"p-f27506fe6b12"}');
INSERT INTO "runtrue_events" VALUES(30,'tagged',1,1767225600000000,'created','{"by":"","workflow":"flow","version":"1"}');
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
INSERT INTO "runtrue_holds" VALUES('h-12d143e8e087','pausing','operator',1767225600000000,'anna','because',NULL,NULL,NULL);
INSERT INTO "runtrue_holds" VALUES('h-2e73b1f1beac','keyed','code_mismatch',1767225600000000,'w','the code is another',NULL,NULL,NULL);
INSERT INTO "runtrue_holds" VALUES('h-b3558a3608b9','paused','operator',1767225600000000,'anna','because',NULL,NULL,NULL);
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
INSERT INTO "runtrue_pauses" VALUES('p-5c73c9e45774','paused',1767225600000000,NULL,1,0,0,0,0);
INSERT INTO "runtrue_pauses" VALUES('p-f27506fe6b12','keyed',1767225600000000,NULL,1,1,0,1,-4611686018427379985);
CREATE TABLE runtrue_run_payloads (
    run_id TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('input', 'output', 'error', 'tags')),
    body BLOB NOT NULL,
    PRIMARY KEY (run_id, kind)
) WITHOUT ROWID;
INSERT INTO "runtrue_run_payloads" VALUES('cancelled','input',X'7B226E223A317D');
INSERT INTO "runtrue_run_payloads" VALUES('cancelling','input',X'7B226E223A317D');
INSERT INTO "runtrue_run_payloads" VALUES('completed','input',X'7B226E223A317D');
INSERT INTO "runtrue_run_payloads" VALUES('completed','output',X'226F6B22');
INSERT INTO "runtrue_run_payloads" VALUES('failed','error',X'226F6B22');
INSERT INTO "runtrue_run_payloads" VALUES('failed','input',X'7B226E223A317D');
INSERT INTO "runtrue_run_payloads" VALUES('keyed','input',X'7B226E223A317D');
INSERT INTO "runtrue_run_payloads" VALUES('paused','input',X'7B226E223A317D');
INSERT INTO "runtrue_run_payloads" VALUES('pausing','input',X'7B226E223A317D');
INSERT INTO "runtrue_run_payloads" VALUES('pending','input',X'7B226E223A317D');
INSERT INTO "runtrue_run_payloads" VALUES('running','input',X'7B226E223A317D');
INSERT INTO "runtrue_run_payloads" VALUES('tagged','input',X'7B226E223A317D');
INSERT INTO "runtrue_run_payloads" VALUES('tagged','tags','{"k":"v"}');
INSERT INTO "runtrue_run_payloads" VALUES('waiting','input',X'7B226E223A317D');
CREATE TABLE runtrue_run_progress (
    run_id TEXT NOT NULL PRIMARY KEY,
    done REAL,
    total REAL,
    note TEXT NOT NULL,
    at INTEGER NOT NULL
) WITHOUT ROWID;
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
INSERT INTO "runtrue_runs" VALUES('cancelled','cancelled',1,NULL,0,0,4,1,0,1,-4611686018427379985,1767225600000000,'flow','1',-1,1767225600000000,NULL,'cancel','workflow',1767225600000000,'',1767225600000000,1767225600000000,1767225600000000);
INSERT INTO "runtrue_runs" VALUES('cancelling','cancelling',1,'w',0,0,4,1,0,1,-4611686018427379985,1767225600000000,'flow','1',-1,1767225600000000,NULL,'cancel','anna',1767225600000000,'because',1767225600000000,1767225600000000,NULL);
INSERT INTO "runtrue_runs" VALUES('completed','completed',1,NULL,0,0,4,1,0,1,-4611686018427379985,1767225600000000,'flow','1',-1,1767225600000000,NULL,NULL,NULL,NULL,NULL,1767225600000000,1767225600000000,1767225600000000);
INSERT INTO "runtrue_runs" VALUES('failed','failed',1,NULL,0,0,4,1,0,1,-4611686018427379985,1767225600000000,'flow','1',-1,1767225600000000,NULL,NULL,NULL,NULL,NULL,1767225600000000,1767225600000000,1767225600000000);
INSERT INTO "runtrue_runs" VALUES('keyed','paused',1,NULL,0,1,6,1,0,1,-4611686018427379985,1767225600000000,'flow','1',-1,1767225600000000,NULL,NULL,NULL,NULL,NULL,1767225600000000,1767225600000000,NULL);
INSERT INTO "runtrue_runs" VALUES('paused','paused',0,NULL,0,1,3,0,0,1,0,1767225600000000,'flow','1',0,1767225600000000,NULL,'pause','anna',1767225600000000,'because',1767225600000000,NULL,NULL);
INSERT INTO "runtrue_runs" VALUES('pausing','pausing',1,'w',0,1,5,1,0,1,-4611686018427379985,1767225600000000,'flow','1',-1,1767225600000000,NULL,'pause','anna',1767225600000000,'because',1767225600000000,1767225600000000,NULL);
INSERT INTO "runtrue_runs" VALUES('pending','pending',0,NULL,0,0,1,0,0,1,0,1767225600000000,'flow','1',0,1767225600000000,NULL,NULL,NULL,NULL,NULL,1767225600000000,NULL,NULL);
INSERT INTO "runtrue_runs" VALUES('running','running',1,'w',0,0,3,1,0,1,-4611686018427379985,1767225600000000,'flow','1',-1,1767225600000000,NULL,NULL,NULL,NULL,NULL,1767225600000000,1767225600000000,NULL);
INSERT INTO "runtrue_runs" VALUES('tagged','pending',0,NULL,0,0,1,0,0,1,0,1767225600000000,'flow','1',0,1767225600000000,'k',NULL,NULL,NULL,NULL,1767225600000000,NULL,NULL);
INSERT INTO "runtrue_runs" VALUES('waiting','waiting',1,NULL,0,0,4,1,0,1,-4611686018427379985,1767225600000000,'flow','1',-1,1767229200000000,NULL,NULL,NULL,NULL,NULL,1767225600000000,1767225600000000,NULL);
CREATE TABLE runtrue_schema_version (version INTEGER NOT NULL PRIMARY KEY, applied_at INTEGER NOT NULL);
INSERT INTO "runtrue_schema_version" VALUES(1,1767225600000000);
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
INSERT INTO "runtrue_steps" VALUES('cancelled','',1,3,-4611686018427379985,'charge','step',1,10,20,NULL,X'226F6B22',NULL);
INSERT INTO "runtrue_steps" VALUES('cancelling','',1,3,-4611686018427379985,'charge','step',1,10,20,NULL,X'226F6B22',NULL);
INSERT INTO "runtrue_steps" VALUES('completed','',1,3,-4611686018427379985,'charge','step',1,10,20,NULL,X'226F6B22',NULL);
INSERT INTO "runtrue_steps" VALUES('failed','',1,3,-4611686018427379985,'charge','step',1,10,20,NULL,X'226F6B22',NULL);
INSERT INTO "runtrue_steps" VALUES('keyed','',1,3,-4611686018427379985,'charge','step',1,10,20,NULL,X'226F6B22',NULL);
INSERT INTO "runtrue_steps" VALUES('pausing','',1,3,-4611686018427379985,'charge','step',1,10,20,NULL,X'226F6B22',NULL);
INSERT INTO "runtrue_steps" VALUES('running','',1,3,-4611686018427379985,'charge','step',1,10,20,NULL,X'226F6B22',NULL);
INSERT INTO "runtrue_steps" VALUES('waiting','',1,3,-4611686018427379985,'charge','step',1,10,20,NULL,X'226F6B22',NULL);
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
INSERT INTO "runtrue_workers" VALUES('w','host',7,'stopped',1767225600000000,1767225600000000,1767225615000000,1767225600000000,10,'["flow@1"]','[]','',0);
CREATE INDEX runtrue_runs_claim ON runtrue_runs (workflow, version, priority, ready_at, id)
    WHERE status IN ('pending', 'waiting');
CREATE INDEX runtrue_runs_worker ON runtrue_runs (worker_id) WHERE worker_id IS NOT NULL;
CREATE INDEX runtrue_runs_status ON runtrue_runs (status, created_at, id);
CREATE INDEX runtrue_runs_workflow ON runtrue_runs (workflow, created_at, id);
CREATE INDEX runtrue_runs_created ON runtrue_runs (created_at, id);
CREATE UNIQUE INDEX runtrue_runs_key ON runtrue_runs (workflow, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE UNIQUE INDEX runtrue_events_seq ON runtrue_events (run_id, seq);
CREATE INDEX runtrue_holds_run ON runtrue_holds (run_id, opened_at);
CREATE INDEX runtrue_holds_open ON runtrue_holds (opened_at) WHERE closed_at IS NULL;
CREATE UNIQUE INDEX runtrue_holds_operator ON runtrue_holds (run_id) WHERE kind = 'operator' AND closed_at IS NULL;
CREATE INDEX runtrue_pauses_run ON runtrue_pauses (run_id, paused_at);
CREATE UNIQUE INDEX runtrue_pauses_active ON runtrue_pauses (run_id) WHERE ended_at IS NULL;
CREATE INDEX runtrue_workers_lease ON runtrue_workers (lease_until) WHERE status = 'alive';
CREATE TRIGGER runtrue_runs_born BEFORE INSERT ON runtrue_runs
WHEN NEW.status <> 'pending' OR NEW.epoch <> 0
    OR EXISTS (SELECT 1 FROM runtrue_runs WHERE id = NEW.id)
    OR EXISTS (SELECT 1 FROM runtrue_runs WHERE workflow = NEW.workflow AND idempotency_key = NEW.idempotency_key)
BEGIN SELECT RAISE(ABORT, 'runtrue: a run is born pending, with epoch 0, under an id and key of its own'); END;
CREATE TRIGGER runtrue_runs_identity BEFORE UPDATE OF id, workflow, version, idempotency_key, created_at ON runtrue_runs
BEGIN SELECT RAISE(ABORT, 'runtrue: the identity of a run never changes'); END;
CREATE TRIGGER runtrue_runs_epoch AFTER UPDATE OF epoch ON runtrue_runs
WHEN NEW.epoch < OLD.epoch
BEGIN SELECT RAISE(ABORT, 'runtrue: the epoch of a run only rises; a worker under an older one would pass'); END;
CREATE TRIGGER runtrue_runs_move AFTER UPDATE OF status ON runtrue_runs
WHEN OLD.status <> NEW.status AND instr(' cancelling>cancelled paused>cancelled paused>failed paused>pending pausing>cancelled pausing>cancelling pausing>completed pausing>failed pausing>paused pausing>running pending>cancelled pending>paused pending>running running>cancelled running>cancelling running>completed running>failed running>paused running>pausing running>pending running>waiting waiting>cancelled waiting>paused waiting>pending waiting>running ', ' ' || OLD.status || '>' || NEW.status || ' ') = 0
BEGIN SELECT RAISE(ABORT, 'runtrue: the lifecycle has no such change of status'); END;
CREATE TRIGGER runtrue_runs_final AFTER UPDATE ON runtrue_runs
WHEN OLD.finished_at IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'runtrue: a finished run never changes'); END;
CREATE TRIGGER runtrue_runs_kept BEFORE DELETE ON runtrue_runs
WHEN OLD.status NOT IN ('completed', 'failed', 'cancelled')
BEGIN SELECT RAISE(ABORT, 'runtrue: only a finished run may be deleted; cancel it first'); END;
CREATE TRIGGER runtrue_payloads_once BEFORE INSERT ON runtrue_run_payloads
WHEN EXISTS (SELECT 1 FROM runtrue_run_payloads WHERE run_id = NEW.run_id AND kind = NEW.kind)
BEGIN SELECT RAISE(ABORT, 'runtrue: a recorded payload is never replaced'); END;
CREATE TRIGGER runtrue_payloads_fixed BEFORE UPDATE ON runtrue_run_payloads
BEGIN SELECT RAISE(ABORT, 'runtrue: a recorded payload never changes'); END;
CREATE TRIGGER runtrue_payloads_kept BEFORE DELETE ON runtrue_run_payloads
WHEN EXISTS (SELECT 1 FROM runtrue_runs WHERE id = OLD.run_id AND status NOT IN ('completed', 'failed', 'cancelled'))
BEGIN SELECT RAISE(ABORT, 'runtrue: the run is not finished and needs its payloads'); END;
CREATE TRIGGER runtrue_steps_once BEFORE INSERT ON runtrue_steps
WHEN EXISTS (SELECT 1 FROM runtrue_steps WHERE run_id = NEW.run_id AND branch = NEW.branch AND ordinal = NEW.ordinal)
BEGIN SELECT RAISE(ABORT, 'runtrue: a recorded step is never replaced'); END;
CREATE TRIGGER runtrue_steps_fixed BEFORE UPDATE ON runtrue_steps
BEGIN SELECT RAISE(ABORT, 'runtrue: a recorded step never changes'); END;
CREATE TRIGGER runtrue_steps_kept BEFORE DELETE ON runtrue_steps
WHEN EXISTS (SELECT 1 FROM runtrue_runs WHERE id = OLD.run_id AND status NOT IN ('completed', 'failed', 'cancelled'))
BEGIN SELECT RAISE(ABORT, 'runtrue: the run is not finished and needs its steps'); END;
CREATE TRIGGER runtrue_attempts_once BEFORE INSERT ON runtrue_attempts
WHEN EXISTS (SELECT 1 FROM runtrue_attempts WHERE run_id = NEW.run_id AND branch = NEW.branch
    AND ordinal = NEW.ordinal AND attempt = NEW.attempt)
BEGIN SELECT RAISE(ABORT, 'runtrue: a recorded attempt is never replaced'); END;
CREATE TRIGGER runtrue_attempts_fixed BEFORE UPDATE ON runtrue_attempts
BEGIN SELECT RAISE(ABORT, 'runtrue: a recorded attempt never changes'); END;
CREATE TRIGGER runtrue_attempts_kept BEFORE DELETE ON runtrue_attempts
WHEN EXISTS (SELECT 1 FROM runtrue_runs WHERE id = OLD.run_id AND status NOT IN ('completed', 'failed', 'cancelled'))
BEGIN SELECT RAISE(ABORT, 'runtrue: the run is not finished and needs its attempts'); END;
CREATE TRIGGER runtrue_events_once BEFORE INSERT ON runtrue_events
WHEN EXISTS (SELECT 1 FROM runtrue_events WHERE run_id = NEW.run_id AND seq = NEW.seq)
    OR EXISTS (SELECT 1 FROM runtrue_events WHERE position = NEW.position)
BEGIN SELECT RAISE(ABORT, 'runtrue: an event is never replaced'); END;
CREATE TRIGGER runtrue_events_fixed BEFORE UPDATE ON runtrue_events
BEGIN SELECT RAISE(ABORT, 'runtrue: an event never changes'); END;
CREATE TRIGGER runtrue_events_kept BEFORE DELETE ON runtrue_events
WHEN EXISTS (SELECT 1 FROM runtrue_runs WHERE id = OLD.run_id AND status NOT IN ('completed', 'failed', 'cancelled'))
BEGIN SELECT RAISE(ABORT, 'runtrue: the run is not finished and needs its events'); END;
CREATE TRIGGER runtrue_holds_counted BEFORE INSERT ON runtrue_holds
WHEN EXISTS (SELECT 1 FROM runtrue_holds WHERE id = NEW.id) OR NEW.closed_at IS NOT NULL
    OR (SELECT count(*) FROM runtrue_holds WHERE run_id = NEW.run_id AND closed_at IS NULL)
        >= coalesce((SELECT open_run_holds FROM runtrue_runs WHERE id = NEW.run_id), 0)
BEGIN SELECT RAISE(ABORT, 'runtrue: a hold is opened once, and only if its run counts it'); END;
CREATE TRIGGER runtrue_holds_fixed BEFORE UPDATE ON runtrue_holds
WHEN OLD.closed_at IS NOT NULL OR (NEW.id, NEW.run_id, NEW.kind, NEW.opened_at, NEW.opened_by, NEW.reason)
    <> (OLD.id, OLD.run_id, OLD.kind, OLD.opened_at, OLD.opened_by, OLD.reason)
BEGIN SELECT RAISE(ABORT, 'runtrue: a hold is closed once and changes in nothing else'); END;
CREATE TRIGGER runtrue_holds_closed BEFORE UPDATE OF closed_at ON runtrue_holds
WHEN OLD.closed_at IS NULL AND (SELECT count(*) FROM runtrue_holds WHERE run_id = OLD.run_id AND closed_at IS NULL)
    <= (SELECT open_run_holds FROM runtrue_runs WHERE id = OLD.run_id)
BEGIN SELECT RAISE(ABORT, 'runtrue: the run counts this hold as open; resume, answer or cancel it'); END;
CREATE TRIGGER runtrue_holds_kept BEFORE DELETE ON runtrue_holds
WHEN EXISTS (SELECT 1 FROM runtrue_runs WHERE id = OLD.run_id AND status NOT IN ('completed', 'failed', 'cancelled'))
BEGIN SELECT RAISE(ABORT, 'runtrue: the run is not finished and needs its holds'); END;
CREATE TRIGGER runtrue_pauses_born BEFORE INSERT ON runtrue_pauses
WHEN NOT EXISTS (SELECT 1 FROM runtrue_runs WHERE id = NEW.run_id AND status = 'paused')
    OR EXISTS (SELECT 1 FROM runtrue_pauses WHERE id = NEW.id)
    OR EXISTS (SELECT 1 FROM runtrue_pauses WHERE run_id = NEW.run_id AND ended_at IS NULL)
BEGIN SELECT RAISE(ABORT, 'runtrue: a pause begins with a run that is paused, once'); END;
CREATE TRIGGER runtrue_pauses_fixed BEFORE UPDATE ON runtrue_pauses
WHEN OLD.ended_at IS NOT NULL OR NEW.ended_at IS NULL
    OR (NEW.id, NEW.run_id, NEW.paused_at, NEW.snapshot_schema, NEW.epoch, NEW.wakeups, NEW.steps_done, NEW.digest)
    <> (OLD.id, OLD.run_id, OLD.paused_at, OLD.snapshot_schema, OLD.epoch, OLD.wakeups, OLD.steps_done, OLD.digest)
BEGIN SELECT RAISE(ABORT, 'runtrue: a pause ends once and changes in nothing else'); END;
CREATE TRIGGER runtrue_pauses_ended BEFORE UPDATE OF ended_at ON runtrue_pauses
WHEN EXISTS (SELECT 1 FROM runtrue_runs WHERE id = OLD.run_id AND status = 'paused')
BEGIN SELECT RAISE(ABORT, 'runtrue: the run is paused; resume, answer or cancel it'); END;
CREATE TRIGGER runtrue_pauses_kept BEFORE DELETE ON runtrue_pauses
WHEN EXISTS (SELECT 1 FROM runtrue_runs WHERE id = OLD.run_id AND status NOT IN ('completed', 'failed', 'cancelled'))
BEGIN SELECT RAISE(ABORT, 'runtrue: the run is not finished and needs its pauses'); END;
CREATE TRIGGER runtrue_commands_once BEFORE INSERT ON runtrue_commands
WHEN EXISTS (SELECT 1 FROM runtrue_commands WHERE run_id = NEW.run_id AND request_id = NEW.request_id)
BEGIN SELECT RAISE(ABORT, 'runtrue: a command is never replaced'); END;
CREATE TRIGGER runtrue_commands_fixed BEFORE UPDATE ON runtrue_commands
BEGIN SELECT RAISE(ABORT, 'runtrue: a command never changes'); END;
CREATE TRIGGER runtrue_commands_kept BEFORE DELETE ON runtrue_commands
WHEN EXISTS (SELECT 1 FROM runtrue_runs WHERE id = OLD.run_id AND status NOT IN ('completed', 'failed', 'cancelled'))
BEGIN SELECT RAISE(ABORT, 'runtrue: the run is not finished and needs its commands'); END;
CREATE TRIGGER runtrue_workers_once BEFORE INSERT ON runtrue_workers
WHEN EXISTS (SELECT 1 FROM runtrue_workers WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'runtrue: a worker id is never used twice'); END;
CREATE TRIGGER runtrue_workers_gone BEFORE UPDATE OF id, status ON runtrue_workers
WHEN OLD.status <> 'alive' OR NEW.id <> OLD.id
BEGIN SELECT RAISE(ABORT, 'runtrue: a worker that was lost or has stopped never comes back'); END;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('runtrue_events',30);
COMMIT;
