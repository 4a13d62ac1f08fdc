-- Candidates come from the claim index alone, one range for each workflow, version and priority, so that neither
-- finished runs nor sleepers nor the runs of other workflows are ever looked at. A run whose deadline has passed is left
-- to the sweeper.

-- name: next_priority
SELECT min(priority) FROM runtrue_runs
WHERE workflow = ? AND version = ? AND status IN ({{claimable}}) AND priority > ?

-- name: candidates
SELECT ready_at, id FROM runtrue_runs
WHERE workflow = ? AND version = ? AND status IN ({{claimable}}) AND priority = ? AND ready_at <= ?
    AND (deadline_at IS NULL OR deadline_at > ?)
ORDER BY ready_at, id LIMIT ?

-- name: first_ready_at
SELECT min(ready_at) FROM runtrue_runs
WHERE workflow = ? AND version = ? AND status IN ({{claimable}}) AND priority = ?
    AND (deadline_at IS NULL OR deadline_at > ?)

-- name: is_alive
SELECT 1 FROM runtrue_workers WHERE id = ? AND status = 'alive'

-- name: claim
UPDATE runtrue_runs
SET status = {{to:claim}}, epoch = epoch + 1, worker_id = ?, event_seq = event_seq + 1,
    started_at = coalesce(started_at, ?), updated_at = ?
WHERE id = ? AND status IN ({{from:claim}}) AND ready_at <= ? AND (deadline_at IS NULL OR deadline_at > ?)

-- In the order of the ids.
-- name: claimed
SELECT r.id, workflow, version, epoch, status, wakeups, attempt, created_at, event_seq, parent_id,
    coalesce(i.body, x''), t.body
FROM json_each(?) AS wanted
CROSS JOIN runtrue_runs AS r ON r.id = wanted.value
LEFT JOIN runtrue_run_payloads AS i ON i.run_id = r.id AND i.kind = 'input'
LEFT JOIN runtrue_run_payloads AS t ON t.run_id = r.id AND t.kind = 'tags'

-- name: steps
SELECT branch, ordinal, name, kind, attempt, output, error, started_at, finished_at, digest, wake_at, seq
FROM runtrue_steps WHERE run_id = ? ORDER BY branch, ordinal

-- name: attempts
SELECT branch, ordinal, name, attempt, error, started_at, failed_at, next_at, seq
FROM runtrue_attempts WHERE run_id = ? ORDER BY branch, ordinal, attempt
