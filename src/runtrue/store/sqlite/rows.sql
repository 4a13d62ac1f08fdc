-- Inserted row by row for many runs at once, hence positional parameters.

-- name: add_step
INSERT INTO runtrue_steps (run_id, branch, ordinal, seq, digest, name, kind, attempt, started_at, finished_at, wake_at,
    output, error)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: add_attempt
INSERT INTO runtrue_attempts (run_id, branch, ordinal, attempt, seq, name, started_at, failed_at, next_at, error)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: set_progress
INSERT INTO runtrue_run_progress (run_id, done, total, note, at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (run_id) DO UPDATE SET done = excluded.done, total = excluded.total, note = excluded.note, at = excluded.at

-- name: add_payload
INSERT INTO runtrue_run_payloads (run_id, kind, body) VALUES (?, ?, ?)
