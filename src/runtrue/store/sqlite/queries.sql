-- name: runs
SELECT status, request_verb, request_by, request_at, request_reason, g.done, g.total, g.note, g.at, t.body,
    r.id, workflow, version, priority, ready_at, epoch, worker_id, wakeups, open_run_holds, event_seq, steps_done,
    losses, attempt, idempotency_key, created_at, started_at, finished_at, updated_at, parent_id, children_left,
    deadline_at
FROM json_each(:ids) AS wanted
CROSS JOIN runtrue_runs AS r ON r.id = wanted.value
LEFT JOIN runtrue_run_progress AS g ON g.run_id = r.id
LEFT JOIN runtrue_run_payloads AS t ON t.run_id = r.id AND t.kind = 'tags'
ORDER BY wanted.key

-- name: payloads
SELECT kind, body FROM runtrue_run_payloads WHERE run_id = :run_id AND kind <> 'tags'

-- name: statuses
SELECT id, status, event_seq FROM runtrue_runs WHERE id IN (SELECT value FROM json_each(:ids))

-- Three ways to a page, so that each walks an index in the order of the list and ends after `limit` rows that match.
-- name: page
SELECT created_at, id FROM runtrue_runs AS r
WHERE (created_at, id) < (:before_at, :before_id) AND created_at >= :since
    AND NOT EXISTS (
        SELECT 1 FROM json_each(:tags) AS wanted
        WHERE NOT EXISTS (
            SELECT 1 FROM runtrue_run_payloads AS t, json_each(t.body) AS tag
            WHERE t.run_id = r.id AND t.kind = 'tags' AND tag.key = wanted.key AND tag.value = wanted.value))
ORDER BY created_at DESC, id DESC LIMIT :limit

-- name: page_of_workflow
SELECT created_at, id FROM runtrue_runs AS r
WHERE workflow = :workflow AND (created_at, id) < (:before_at, :before_id) AND created_at >= :since
    AND NOT EXISTS (
        SELECT 1 FROM json_each(:tags) AS wanted
        WHERE NOT EXISTS (
            SELECT 1 FROM runtrue_run_payloads AS t, json_each(t.body) AS tag
            WHERE t.run_id = r.id AND t.kind = 'tags' AND tag.key = wanted.key AND tag.value = wanted.value))
ORDER BY created_at DESC, id DESC LIMIT :limit

-- name: page_of_status
SELECT created_at, id FROM runtrue_runs AS r
WHERE status = :status AND (created_at, id) < (:before_at, :before_id) AND created_at >= :since
    AND (:workflow IS NULL OR workflow = :workflow)
    AND NOT EXISTS (
        SELECT 1 FROM json_each(:tags) AS wanted
        WHERE NOT EXISTS (
            SELECT 1 FROM runtrue_run_payloads AS t, json_each(t.body) AS tag
            WHERE t.run_id = r.id AND t.kind = 'tags' AND tag.key = wanted.key AND tag.value = wanted.value))
ORDER BY created_at DESC, id DESC LIMIT :limit

-- name: count
SELECT status, count(*) FROM runtrue_runs GROUP BY status

-- A step is no row of the event log: what happened is both, merged by the one counter of the run.
-- name: events
SELECT seq, at, type, data FROM runtrue_events WHERE run_id = :run_id AND seq > :after
UNION ALL
SELECT seq, finished_at, 'step', json_object('name', name, 'kind', kind, 'branch', branch, 'ordinal', ordinal,
    'attempt', attempt, 'failed', json(CASE WHEN error IS NULL THEN 'false' ELSE 'true' END), 'started_at', started_at)
FROM runtrue_steps WHERE run_id = :run_id AND seq > :after
UNION ALL
SELECT seq, failed_at, 'attempt_failed', json_object('name', name, 'branch', branch, 'ordinal', ordinal,
    'attempt', attempt, 'started_at', started_at, 'next_at', next_at)
FROM runtrue_attempts WHERE run_id = :run_id AND seq > :after
ORDER BY 1 LIMIT :limit

-- name: event_seq
SELECT event_seq FROM runtrue_runs WHERE id = :run_id

-- name: holds_of_run
SELECT id, run_id, kind, opened_at, opened_by, reason, closed_at, closed_by, outcome, code_digest
FROM runtrue_holds WHERE run_id = :run_id AND (NOT :open_only OR closed_at IS NULL) ORDER BY opened_at, id

-- name: open_holds
SELECT id, run_id, kind, opened_at, opened_by, reason, closed_at, closed_by, outcome, code_digest
FROM runtrue_holds WHERE closed_at IS NULL ORDER BY opened_at, id

-- name: all_holds
SELECT id, run_id, kind, opened_at, opened_by, reason, closed_at, closed_by, outcome, code_digest
FROM runtrue_holds ORDER BY opened_at, id

-- name: pauses
SELECT id, run_id, paused_at, ended_at, snapshot_schema, epoch, wakeups, steps_done, digest
FROM runtrue_pauses WHERE run_id = :run_id ORDER BY paused_at, id

-- name: commands
SELECT request_id, verb, actor, reason, at, answer, status
FROM runtrue_commands WHERE run_id = :run_id ORDER BY at, request_id

-- name: waits
SELECT branch, ordinal, kind, name, subject, opened_at, deadline_at, closed_at, outcome
FROM runtrue_waits WHERE run_id = :run_id ORDER BY branch, ordinal

-- name: messages
SELECT run_id, seq, topic, body, sent_by, sent_at, received_at
FROM runtrue_messages WHERE run_id = :run_id ORDER BY seq

-- name: published
SELECT key, body FROM runtrue_published WHERE run_id = :run_id ORDER BY key

-- name: children
SELECT id FROM runtrue_runs WHERE parent_id = :run_id ORDER BY created_at, id
