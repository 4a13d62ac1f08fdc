-- What every change of a run may bring with it: events, holds, pauses.

-- name: add_event
INSERT INTO runtrue_events (run_id, seq, at, type, data) VALUES (?, ?, ?, ?, ?)

-- name: last_event
SELECT type, data FROM runtrue_events WHERE run_id = :run_id AND seq = :seq

-- name: open_hold
INSERT INTO runtrue_holds (id, run_id, kind, opened_at, opened_by, reason, code_digest)
VALUES (:id, :run_id, :kind, :now, :actor, :reason, :code_digest)

-- name: close_holds
UPDATE runtrue_holds SET closed_at = :now, closed_by = :actor, outcome = :outcome
WHERE run_id = :run_id AND closed_at IS NULL AND kind IN (SELECT value FROM json_each(:kinds))
RETURNING id, kind

-- name: close_hold
UPDATE runtrue_holds SET closed_at = :now, closed_by = :actor, outcome = :outcome
WHERE id = :hold_id AND run_id = :run_id AND closed_at IS NULL
RETURNING id, kind

-- name: open_holds
SELECT id, run_id, kind, opened_at, opened_by, reason, closed_at, closed_by, outcome, code_digest
FROM runtrue_holds WHERE run_id = :run_id AND closed_at IS NULL ORDER BY opened_at, id

-- The manifest of the snapshot: what a resume compares the recorded steps with.
-- name: open_pause
INSERT INTO runtrue_pauses (id, run_id, paused_at, snapshot_schema, epoch, wakeups, steps_done, digest)
SELECT :id, id, :now, 1, epoch, wakeups, steps_done, history_digest
FROM runtrue_runs WHERE id = :run_id AND status = 'paused'

-- name: end_pause
UPDATE runtrue_pauses SET ended_at = :now WHERE run_id = :run_id AND ended_at IS NULL

-- name: active_pause
SELECT id, steps_done, digest FROM runtrue_pauses WHERE run_id = :run_id AND ended_at IS NULL

-- name: step_digests
SELECT digest FROM runtrue_steps WHERE run_id = :run_id
