-- One-way: a worker that was lost never comes back under its id.
-- name: lose_workers
UPDATE runtrue_workers SET status = 'lost' WHERE status = 'alive' AND lease_until < :now RETURNING id

-- Owned by nobody who is alive; also by a worker whose row is gone. The index holds owned runs only; left to itself the
-- planner would walk all runs for the sake of the order.
-- name: orphans
SELECT id, epoch, worker_id, (SELECT status FROM runtrue_workers WHERE id = r.worker_id)
FROM runtrue_runs AS r INDEXED BY runtrue_runs_worker
WHERE worker_id IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM runtrue_workers WHERE id = r.worker_id AND status = 'alive')
ORDER BY id LIMIT :limit

-- Nobody works on these for longer than they were given. What is being cancelled already ends when its worker lets go.
-- name: overdue
SELECT id FROM runtrue_runs INDEXED BY runtrue_runs_deadline
WHERE deadline_at IS NOT NULL AND finished_at IS NULL AND deadline_at <= :now AND status <> 'cancelling'
ORDER BY deadline_at LIMIT :limit

-- Children that go with their parent: it was cancelled or has failed, or it has closed the wait at the place that
-- started them. First
-- the parents that have such children at all, one look into the index for each; then only what may be theirs.
-- name: forsaken
WITH RECURSIVE parents (id) AS (
    SELECT min(parent_id) FROM runtrue_runs WHERE parent_cancels = 1 AND finished_at IS NULL
    UNION ALL
    SELECT (SELECT min(parent_id) FROM runtrue_runs
            WHERE parent_cancels = 1 AND finished_at IS NULL AND parent_id > parents.id)
    FROM parents WHERE parents.id IS NOT NULL
)
SELECT c.id, p.id, CASE p.status WHEN 'failed' THEN 'has failed' ELSE 'was cancelled' END FROM parents
CROSS JOIN runtrue_runs AS p ON p.id = parents.id AND p.status IN ('cancelled', 'failed')
CROSS JOIN runtrue_runs AS c INDEXED BY runtrue_runs_tied
    ON c.parent_id = p.id AND c.parent_cancels = 1 AND c.finished_at IS NULL AND c.status <> 'cancelling'
UNION ALL
SELECT c.id, w.run_id, 'waits for it no longer' FROM parents
CROSS JOIN runtrue_runs AS p ON p.id = parents.id AND p.status NOT IN ('cancelled', 'failed')
CROSS JOIN runtrue_waits AS w INDEXED BY runtrue_waits_moot
    ON w.run_id = p.id AND w.kind = 'child' AND w.outcome = 'moot'
CROSS JOIN runtrue_runs AS c ON c.id = w.subject AND c.parent_id = w.run_id AND c.parent_branch = w.branch
    AND c.parent_ordinal = w.ordinal AND c.parent_cancels = 1 AND c.finished_at IS NULL AND c.status <> 'cancelling'
LIMIT :limit

-- A running run that has lost so many workers without a new step is parked under a hold.
-- Three events: the loss, the hold's and the status's.
-- name: hold_orphan
UPDATE runtrue_runs
SET status = {{to:park_held}}, open_run_holds = open_run_holds + 1, event_seq = event_seq + 3,
    worker_id = NULL, losses = losses + 1, attempt = attempt + 1, updated_at = :now
WHERE id = :run_id AND epoch = :epoch AND worker_id = :worker_id AND status = 'running'
    AND losses + 1 >= :losses_before_hold
RETURNING status, event_seq, losses, ready_at

-- name: in_flight
SELECT in_flight FROM runtrue_workers WHERE id = :worker_id

-- Back-off: none for the first loss, then a second, doubling up to five minutes.
-- The event of the loss, and one of the status where it is not simply pending again.
-- name: release_orphan
UPDATE runtrue_runs
SET status = {{to:release}}, event_seq = event_seq + CASE status WHEN 'running' THEN 1 ELSE 2 END,
    finished_at = CASE WHEN {{to:release}} IN ({{terminal}}) THEN :now END,
    children_left = CASE WHEN {{to:release}} IN ({{terminal}}) THEN 0 ELSE children_left END,
    ready_at = CASE WHEN status <> 'running' THEN ready_at WHEN losses = 0 THEN :now
        ELSE :now + min(1000000 << min(losses - 1, 20), 300000000) END,
    worker_id = NULL, losses = losses + 1, attempt = attempt + 1, updated_at = :now
WHERE id = :run_id AND epoch = :epoch AND worker_id = :worker_id AND status IN ({{from:release}})
RETURNING status, event_seq, losses, ready_at
