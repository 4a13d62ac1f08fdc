-- name: add_run
INSERT INTO runtrue_runs (id, workflow, version, status, priority, ready_at, idempotency_key, deadline_at, parent_id,
    parent_branch, parent_ordinal, parent_cancels, event_seq, created_at, updated_at)
VALUES (:id, :workflow, :version, 'pending', :priority, :ready_at, :key, :deadline_at, :parent_id,
    :parent_branch, :parent_ordinal, :parent_cancels, 1, :now, :now)

-- name: add_payload
INSERT INTO runtrue_run_payloads (run_id, kind, body) VALUES (?, ?, ?)

-- name: same_start
SELECT r.id, r.status, r.workflow = :workflow, p.body = :input
FROM runtrue_runs AS r JOIN runtrue_run_payloads AS p ON p.run_id = r.id AND p.kind = 'input'
WHERE r.id = :id
UNION ALL
SELECT r.id, r.status, 1, p.body = :input
FROM runtrue_runs AS r JOIN runtrue_run_payloads AS p ON p.run_id = r.id AND p.kind = 'input'
WHERE r.workflow = :workflow AND r.idempotency_key = :key
LIMIT 1
