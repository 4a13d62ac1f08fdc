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
CREATE TRIGGER runtrue_runs_identity BEFORE UPDATE OF id, workflow, version, idempotency_key, created_at ON runtrue_runs
BEGIN SELECT RAISE(ABORT, 'runtrue: the identity of a run never changes'); END

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

-- name: runtrue_attempts_fixed
CREATE TRIGGER runtrue_attempts_fixed BEFORE UPDATE ON runtrue_attempts
BEGIN SELECT RAISE(ABORT, 'runtrue: a recorded attempt never changes'); END

-- name: runtrue_events_fixed
CREATE TRIGGER runtrue_events_fixed BEFORE UPDATE ON runtrue_events
BEGIN SELECT RAISE(ABORT, 'runtrue: an event never changes'); END
