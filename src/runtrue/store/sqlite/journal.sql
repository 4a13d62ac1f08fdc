-- What a worker records, each statement under the fence: run, epoch, worker id and an owned status.
-- Positional parameters, because these run once per step. The digest of the history is an exclusive or, which SQLite
-- lacks: a ^ b = (a | b) - (a & b).

-- name: advance
UPDATE runtrue_runs
SET event_seq = event_seq + ?, steps_done = steps_done + ?, losses = 0,
    history_digest = (history_digest | ?) - (history_digest & ?), updated_at = ?
WHERE id = ? AND epoch = ? AND worker_id = ? AND status IN ({{owned}})

-- Failed attempts and progress: no step is done, so the losses stay counted.
-- name: touch
UPDATE runtrue_runs SET event_seq = event_seq + ?, updated_at = ?
WHERE id = ? AND epoch = ? AND worker_id = ? AND status IN ({{owned}})

-- name: step_at
SELECT branch, ordinal, name, kind, attempt, output, error, started_at, finished_at, digest, wake_at, seq
FROM runtrue_steps WHERE run_id = ? AND branch = ? AND ordinal = ?

-- name: has_attempt
SELECT 1 FROM runtrue_attempts WHERE run_id = ? AND branch = ? AND ordinal = ? AND attempt = ?

-- name: run
SELECT status, wakeups FROM runtrue_runs WHERE id = ?

-- In the order of the ids.
-- name: runs
SELECT status, wakeups, event_seq FROM json_each(?) AS wanted CROSS JOIN runtrue_runs AS r ON r.id = wanted.value
