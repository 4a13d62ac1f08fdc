-- The lifecycle table as the database enforces it, against any hand that writes to the file. Made anew when their
-- text differs. Plain SQL only: the sqlite3 shell has none of our functions.

-- INSERT OR REPLACE removes the row it replaces without asking DELETE triggers, so this is the guard against it: no
-- row of that id or key may exist.
-- name: runtrue_runs_born
CREATE TRIGGER runtrue_runs_born BEFORE INSERT ON runtrue_runs
WHEN NEW.status <> 'pending' OR NEW.epoch <> 0
    OR EXISTS (SELECT 1 FROM runtrue_runs WHERE id = NEW.id)
    OR EXISTS (SELECT 1 FROM runtrue_runs WHERE workflow = NEW.workflow AND idempotency_key = NEW.idempotency_key)
BEGIN SELECT RAISE(ABORT, 'runtrue: a run is born pending, with epoch 0, under an id and key of its own'); END

-- name: runtrue_runs_identity
CREATE TRIGGER runtrue_runs_identity BEFORE UPDATE OF id, workflow, version, idempotency_key, created_at, parent_id,
    parent_branch, parent_ordinal, parent_cancels, deadline_at ON runtrue_runs
BEGIN SELECT RAISE(ABORT, 'runtrue: the identity of a run never changes'); END

-- Fires for statements that name the epoch, and so for claims only.
-- name: runtrue_runs_epoch
CREATE TRIGGER runtrue_runs_epoch AFTER UPDATE OF epoch ON runtrue_runs
WHEN NEW.epoch < OLD.epoch
BEGIN SELECT RAISE(ABORT, 'runtrue: the epoch of a run only rises; a worker under an older one would pass'); END

-- Fires for statements that name the status, and so not for the one that counts a step. One text to look into, where
-- an IN list would be built up anew each time.
-- name: runtrue_runs_move
CREATE TRIGGER runtrue_runs_move AFTER UPDATE OF status ON runtrue_runs
WHEN OLD.status <> NEW.status AND instr({{legal_moves}}, ' ' || OLD.status || '>' || NEW.status || ' ') = 0
BEGIN SELECT RAISE(ABORT, 'runtrue: the lifecycle has no such change of status'); END

-- Asks for finished_at, which a check ties to the terminal statuses, because this is asked with every step. AFTER spares
-- a second search for the row; an illegal change is undone all the same.
-- name: runtrue_runs_final
CREATE TRIGGER runtrue_runs_final AFTER UPDATE ON runtrue_runs
WHEN OLD.finished_at IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'runtrue: a finished run never changes'); END

-- name: runtrue_runs_kept
CREATE TRIGGER runtrue_runs_kept BEFORE DELETE ON runtrue_runs
WHEN OLD.status NOT IN ({{terminal}})
BEGIN SELECT RAISE(ABORT, 'runtrue: only a finished run may be deleted; cancel it first'); END

-- name: runtrue_payloads_once
CREATE TRIGGER runtrue_payloads_once BEFORE INSERT ON runtrue_run_payloads
WHEN EXISTS (SELECT 1 FROM runtrue_run_payloads WHERE run_id = NEW.run_id AND kind = NEW.kind)
BEGIN SELECT RAISE(ABORT, 'runtrue: a recorded payload is never replaced'); END

-- name: runtrue_payloads_fixed
CREATE TRIGGER runtrue_payloads_fixed BEFORE UPDATE ON runtrue_run_payloads
BEGIN SELECT RAISE(ABORT, 'runtrue: a recorded payload never changes'); END

-- name: runtrue_payloads_kept
CREATE TRIGGER runtrue_payloads_kept BEFORE DELETE ON runtrue_run_payloads
WHEN EXISTS (SELECT 1 FROM runtrue_runs WHERE id = OLD.run_id AND status NOT IN ({{terminal}}))
BEGIN SELECT RAISE(ABORT, 'runtrue: the run is not finished and needs its payloads'); END

-- name: runtrue_steps_once
CREATE TRIGGER runtrue_steps_once BEFORE INSERT ON runtrue_steps
WHEN EXISTS (SELECT 1 FROM runtrue_steps WHERE run_id = NEW.run_id AND branch = NEW.branch AND ordinal = NEW.ordinal)
BEGIN SELECT RAISE(ABORT, 'runtrue: a recorded step is never replaced'); END

-- name: runtrue_steps_fixed
CREATE TRIGGER runtrue_steps_fixed BEFORE UPDATE ON runtrue_steps
BEGIN SELECT RAISE(ABORT, 'runtrue: a recorded step never changes'); END

-- name: runtrue_steps_kept
CREATE TRIGGER runtrue_steps_kept BEFORE DELETE ON runtrue_steps
WHEN EXISTS (SELECT 1 FROM runtrue_runs WHERE id = OLD.run_id AND status NOT IN ({{terminal}}))
BEGIN SELECT RAISE(ABORT, 'runtrue: the run is not finished and needs its steps'); END

-- name: runtrue_attempts_once
CREATE TRIGGER runtrue_attempts_once BEFORE INSERT ON runtrue_attempts
WHEN EXISTS (SELECT 1 FROM runtrue_attempts WHERE run_id = NEW.run_id AND branch = NEW.branch
    AND ordinal = NEW.ordinal AND attempt = NEW.attempt)
BEGIN SELECT RAISE(ABORT, 'runtrue: a recorded attempt is never replaced'); END

-- name: runtrue_attempts_fixed
CREATE TRIGGER runtrue_attempts_fixed BEFORE UPDATE ON runtrue_attempts
BEGIN SELECT RAISE(ABORT, 'runtrue: a recorded attempt never changes'); END

-- name: runtrue_attempts_kept
CREATE TRIGGER runtrue_attempts_kept BEFORE DELETE ON runtrue_attempts
WHEN EXISTS (SELECT 1 FROM runtrue_runs WHERE id = OLD.run_id AND status NOT IN ({{terminal}}))
BEGIN SELECT RAISE(ABORT, 'runtrue: the run is not finished and needs its attempts'); END

-- A position that is left to the database is -1 here.
-- name: runtrue_events_once
CREATE TRIGGER runtrue_events_once BEFORE INSERT ON runtrue_events
WHEN EXISTS (SELECT 1 FROM runtrue_events WHERE run_id = NEW.run_id AND seq = NEW.seq)
    OR EXISTS (SELECT 1 FROM runtrue_events WHERE position = NEW.position)
BEGIN SELECT RAISE(ABORT, 'runtrue: an event is never replaced'); END

-- name: runtrue_events_fixed
CREATE TRIGGER runtrue_events_fixed BEFORE UPDATE ON runtrue_events
BEGIN SELECT RAISE(ABORT, 'runtrue: an event never changes'); END

-- name: runtrue_events_kept
CREATE TRIGGER runtrue_events_kept BEFORE DELETE ON runtrue_events
WHEN EXISTS (SELECT 1 FROM runtrue_runs WHERE id = OLD.run_id AND status NOT IN ({{terminal}}))
BEGIN SELECT RAISE(ABORT, 'runtrue: the run is not finished and needs its events'); END

-- The run is changed before its holds and its pause are, so that each of these can ask whether the run agrees.
-- name: runtrue_holds_counted
CREATE TRIGGER runtrue_holds_counted BEFORE INSERT ON runtrue_holds
WHEN EXISTS (SELECT 1 FROM runtrue_holds WHERE id = NEW.id) OR NEW.closed_at IS NOT NULL
    OR (SELECT count(*) FROM runtrue_holds WHERE run_id = NEW.run_id AND closed_at IS NULL)
        >= coalesce((SELECT open_run_holds FROM runtrue_runs WHERE id = NEW.run_id), 0)
BEGIN SELECT RAISE(ABORT, 'runtrue: a hold is opened once, and only if its run counts it'); END

-- name: runtrue_holds_fixed
CREATE TRIGGER runtrue_holds_fixed BEFORE UPDATE ON runtrue_holds
WHEN OLD.closed_at IS NOT NULL
    OR (NEW.id, NEW.run_id, NEW.kind, NEW.opened_at, NEW.opened_by, NEW.reason, NEW.code_digest)
    <> (OLD.id, OLD.run_id, OLD.kind, OLD.opened_at, OLD.opened_by, OLD.reason, OLD.code_digest)
BEGIN SELECT RAISE(ABORT, 'runtrue: a hold is closed once and changes in nothing else'); END

-- name: runtrue_holds_closed
CREATE TRIGGER runtrue_holds_closed BEFORE UPDATE OF closed_at ON runtrue_holds
WHEN OLD.closed_at IS NULL AND (SELECT count(*) FROM runtrue_holds WHERE run_id = OLD.run_id AND closed_at IS NULL)
    <= (SELECT open_run_holds FROM runtrue_runs WHERE id = OLD.run_id)
BEGIN SELECT RAISE(ABORT, 'runtrue: the run counts this hold as open; resume, answer or cancel it'); END

-- name: runtrue_holds_kept
CREATE TRIGGER runtrue_holds_kept BEFORE DELETE ON runtrue_holds
WHEN EXISTS (SELECT 1 FROM runtrue_runs WHERE id = OLD.run_id AND status NOT IN ({{terminal}}))
BEGIN SELECT RAISE(ABORT, 'runtrue: the run is not finished and needs its holds'); END

-- name: runtrue_pauses_born
CREATE TRIGGER runtrue_pauses_born BEFORE INSERT ON runtrue_pauses
WHEN NOT EXISTS (SELECT 1 FROM runtrue_runs WHERE id = NEW.run_id AND status = 'paused')
    OR EXISTS (SELECT 1 FROM runtrue_pauses WHERE id = NEW.id)
    OR EXISTS (SELECT 1 FROM runtrue_pauses WHERE run_id = NEW.run_id AND ended_at IS NULL)
BEGIN SELECT RAISE(ABORT, 'runtrue: a pause begins with a run that is paused, once'); END

-- name: runtrue_pauses_fixed
CREATE TRIGGER runtrue_pauses_fixed BEFORE UPDATE ON runtrue_pauses
WHEN OLD.ended_at IS NOT NULL OR NEW.ended_at IS NULL
    OR (NEW.id, NEW.run_id, NEW.paused_at, NEW.snapshot_schema, NEW.epoch, NEW.wakeups, NEW.steps_done, NEW.digest)
    <> (OLD.id, OLD.run_id, OLD.paused_at, OLD.snapshot_schema, OLD.epoch, OLD.wakeups, OLD.steps_done, OLD.digest)
BEGIN SELECT RAISE(ABORT, 'runtrue: a pause ends once and changes in nothing else'); END

-- name: runtrue_pauses_ended
CREATE TRIGGER runtrue_pauses_ended BEFORE UPDATE OF ended_at ON runtrue_pauses
WHEN EXISTS (SELECT 1 FROM runtrue_runs WHERE id = OLD.run_id AND status = 'paused')
BEGIN SELECT RAISE(ABORT, 'runtrue: the run is paused; resume, answer or cancel it'); END

-- name: runtrue_pauses_kept
CREATE TRIGGER runtrue_pauses_kept BEFORE DELETE ON runtrue_pauses
WHEN EXISTS (SELECT 1 FROM runtrue_runs WHERE id = OLD.run_id AND status NOT IN ({{terminal}}))
BEGIN SELECT RAISE(ABORT, 'runtrue: the run is not finished and needs its pauses'); END

-- name: runtrue_waits_born
CREATE TRIGGER runtrue_waits_born BEFORE INSERT ON runtrue_waits
WHEN EXISTS (SELECT 1 FROM runtrue_waits WHERE run_id = NEW.run_id AND branch = NEW.branch AND ordinal = NEW.ordinal)
    OR NOT EXISTS (SELECT 1 FROM runtrue_runs WHERE id = NEW.run_id AND finished_at IS NULL)
BEGIN SELECT RAISE(ABORT, 'runtrue: a wait is opened once, by a run that is not finished'); END

-- Also where a deadline is added to a wait that has none, hence IS NOT. A wait whose message is given back was moot.
-- name: runtrue_waits_fixed
CREATE TRIGGER runtrue_waits_fixed BEFORE UPDATE ON runtrue_waits
WHEN (OLD.closed_at IS NOT NULL AND (
        (OLD.kind, OLD.outcome, NEW.outcome, NEW.closed_at) <> ('receive', 'met', 'moot', OLD.closed_at)
        OR NOT EXISTS (SELECT 1 FROM runtrue_runs WHERE id = OLD.run_id AND finished_at IS NULL)))
    OR NEW.closed_at IS NULL OR NEW.deadline_at IS NOT OLD.deadline_at
    OR (NEW.run_id, NEW.branch, NEW.ordinal, NEW.kind, NEW.name, NEW.subject, NEW.opened_at)
    <> (OLD.run_id, OLD.branch, OLD.ordinal, OLD.kind, OLD.name, OLD.subject, OLD.opened_at)
BEGIN SELECT RAISE(ABORT, 'runtrue: a wait is closed once and changes in nothing else'); END

-- name: runtrue_waits_kept
CREATE TRIGGER runtrue_waits_kept BEFORE DELETE ON runtrue_waits
WHEN EXISTS (SELECT 1 FROM runtrue_runs WHERE id = OLD.run_id AND status NOT IN ({{terminal}}))
BEGIN SELECT RAISE(ABORT, 'runtrue: the run is not finished and needs its waits'); END

-- name: runtrue_messages_once
CREATE TRIGGER runtrue_messages_once BEFORE INSERT ON runtrue_messages
WHEN NEW.received_at IS NOT NULL
    OR EXISTS (SELECT 1 FROM runtrue_messages WHERE run_id = NEW.run_id AND seq = NEW.seq)
    OR EXISTS (SELECT 1 FROM runtrue_messages WHERE run_id = NEW.run_id AND request_id = NEW.request_id)
    OR NOT EXISTS (SELECT 1 FROM runtrue_runs WHERE id = NEW.run_id AND finished_at IS NULL)
BEGIN SELECT RAISE(ABORT, 'runtrue: a message is sent once, to a run that is not finished'); END

-- It is given back if the wait that has received it was moot; the wait is changed first.
-- name: runtrue_messages_fixed
CREATE TRIGGER runtrue_messages_fixed BEFORE UPDATE ON runtrue_messages
WHEN (OLD.received_at IS NULL) = (NEW.received_at IS NULL)
    OR (OLD.received_at IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM runtrue_waits WHERE run_id = OLD.run_id AND branch = OLD.received_branch
            AND ordinal = OLD.received_ordinal AND outcome = 'moot'))
    OR (NEW.run_id, NEW.seq, NEW.topic, NEW.request_id, NEW.sent_by, NEW.sent_at, NEW.body)
    <> (OLD.run_id, OLD.seq, OLD.topic, OLD.request_id, OLD.sent_by, OLD.sent_at, OLD.body)
BEGIN SELECT RAISE(ABORT, 'runtrue: a message is received once and changes in nothing else'); END

-- name: runtrue_messages_kept
CREATE TRIGGER runtrue_messages_kept BEFORE DELETE ON runtrue_messages
WHEN EXISTS (SELECT 1 FROM runtrue_runs WHERE id = OLD.run_id AND status NOT IN ({{terminal}}))
BEGIN SELECT RAISE(ABORT, 'runtrue: the run is not finished and needs its messages'); END

-- A value is published anew by an insert that finds its key taken, which passes this one too.
-- name: runtrue_published_open
CREATE TRIGGER runtrue_published_open BEFORE INSERT ON runtrue_published
WHEN NOT EXISTS (SELECT 1 FROM runtrue_runs WHERE id = NEW.run_id AND finished_at IS NULL)
BEGIN SELECT RAISE(ABORT, 'runtrue: only a run that is not finished publishes'); END

-- name: runtrue_published_final
CREATE TRIGGER runtrue_published_final BEFORE UPDATE ON runtrue_published
WHEN (NEW.run_id, NEW.key) <> (OLD.run_id, OLD.key)
    OR NOT EXISTS (SELECT 1 FROM runtrue_runs WHERE id = OLD.run_id AND finished_at IS NULL)
BEGIN SELECT RAISE(ABORT, 'runtrue: what a finished run has published never changes'); END

-- name: runtrue_published_kept
CREATE TRIGGER runtrue_published_kept BEFORE DELETE ON runtrue_published
WHEN EXISTS (SELECT 1 FROM runtrue_runs WHERE id = OLD.run_id AND status NOT IN ({{terminal}}))
BEGIN SELECT RAISE(ABORT, 'runtrue: the run is not finished and needs what it has published'); END

-- name: runtrue_commands_once
CREATE TRIGGER runtrue_commands_once BEFORE INSERT ON runtrue_commands
WHEN EXISTS (SELECT 1 FROM runtrue_commands WHERE run_id = NEW.run_id AND request_id = NEW.request_id)
BEGIN SELECT RAISE(ABORT, 'runtrue: a command is never replaced'); END

-- name: runtrue_commands_fixed
CREATE TRIGGER runtrue_commands_fixed BEFORE UPDATE ON runtrue_commands
BEGIN SELECT RAISE(ABORT, 'runtrue: a command never changes'); END

-- name: runtrue_commands_kept
CREATE TRIGGER runtrue_commands_kept BEFORE DELETE ON runtrue_commands
WHEN EXISTS (SELECT 1 FROM runtrue_runs WHERE id = OLD.run_id AND status NOT IN ({{terminal}}))
BEGIN SELECT RAISE(ABORT, 'runtrue: the run is not finished and needs its commands'); END

-- name: runtrue_workers_once
CREATE TRIGGER runtrue_workers_once BEFORE INSERT ON runtrue_workers
WHEN EXISTS (SELECT 1 FROM runtrue_workers WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'runtrue: a worker id is never used twice'); END

-- name: runtrue_workers_gone
CREATE TRIGGER runtrue_workers_gone BEFORE UPDATE OF id, status ON runtrue_workers
WHEN OLD.status <> 'alive' OR NEW.id <> OLD.id
BEGIN SELECT RAISE(ABORT, 'runtrue: a worker that was lost or has stopped never comes back'); END
