-- Candidates come from the claim index alone, one range for each workflow, version and priority, so that neither
-- finished runs nor sleepers nor the runs of other workflows are ever looked at.

-- name: next_priority
SELECT min(priority) FROM runtrue_runs
WHERE workflow = ? AND version = ? AND status IN ({{claimable}}) AND priority > ?

-- name: candidates
SELECT ready_at, id FROM runtrue_runs
WHERE workflow = ? AND version = ? AND status IN ({{claimable}}) AND priority = ? AND ready_at <= ?
ORDER BY ready_at, id LIMIT ?

-- name: first_ready_at
SELECT min(ready_at) FROM runtrue_runs
WHERE workflow = ? AND version = ? AND status IN ({{claimable}}) AND priority = ?

-- name: is_alive
SELECT 1 FROM runtrue_workers WHERE id = ? AND status = 'alive'

-- name: claim
UPDATE runtrue_runs
SET status = {{to:claim}}, epoch = epoch + 1, worker_id = :worker_id, event_seq = event_seq + 1,
    started_at = coalesce(started_at, :now), updated_at = :now
WHERE id = :run_id AND status IN ({{from:claim}}) AND ready_at <= :now
RETURNING workflow, version, epoch, status, wakeups, attempt, created_at, event_seq, steps_done

-- name: payloads
SELECT kind, body FROM runtrue_run_payloads WHERE run_id = ? AND kind IN ('input', 'tags')

-- name: steps
SELECT branch, ordinal, name, kind, attempt, output, error, started_at, finished_at, digest, wake_at, seq
FROM runtrue_steps WHERE run_id = ? ORDER BY branch, ordinal

-- name: attempts
SELECT branch, ordinal, name, attempt, error, started_at, failed_at, next_at, seq
FROM runtrue_attempts WHERE run_id = ? ORDER BY branch, ordinal, attempt
