-- The promises as queries. Each answers with (run, what is wrong); an empty answer is a kept promise.

-- name: paused_means_resumable
SELECT id, 'is paused without an active pause' FROM runtrue_runs AS r
WHERE status = 'paused' AND NOT EXISTS (SELECT 1 FROM runtrue_pauses WHERE run_id = r.id AND ended_at IS NULL)
UNION ALL
SELECT id, 'is paused without an open hold' FROM runtrue_runs AS r
WHERE status = 'paused' AND NOT EXISTS (SELECT 1 FROM runtrue_holds WHERE run_id = r.id AND closed_at IS NULL)
UNION ALL
SELECT p.run_id, 'has the active pause ' || p.id || ' and is not paused' FROM runtrue_pauses AS p
WHERE ended_at IS NULL AND NOT EXISTS (SELECT 1 FROM runtrue_runs WHERE id = p.run_id AND status = 'paused')

-- name: no_zombies
SELECT r.id, 'is ' || r.status || ' and its worker ' || worker_id || ' is '
    || coalesce((SELECT CASE status WHEN 'alive' THEN 'overdue' ELSE status END FROM runtrue_workers
        WHERE id = r.worker_id), 'not known')
FROM runtrue_runs AS r
WHERE worker_id IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM runtrue_workers WHERE id = r.worker_id AND lease_until + :grace >= :now)

-- A wait that its run waits for and that is met already. A child that has completed need not wake its parent while others
-- are left.
-- name: no_lost_wakeups
SELECT r.id, 'waits for a message of topic ' || w.subject || ' and has one'
FROM runtrue_waits AS w JOIN runtrue_runs AS r ON r.id = w.run_id
WHERE w.closed_at IS NULL AND w.kind = 'receive' AND r.status = 'waiting' AND EXISTS (
    SELECT 1 FROM runtrue_messages WHERE run_id = w.run_id AND topic = w.subject AND received_at IS NULL)
UNION ALL
SELECT r.id, 'waits for run ' || w.subject || ', which is ' || c.status
FROM runtrue_waits AS w JOIN runtrue_runs AS r ON r.id = w.run_id JOIN runtrue_runs AS c ON c.id = w.subject
WHERE w.closed_at IS NULL AND w.kind = 'child' AND r.status = 'waiting' AND c.status IN ({{terminal}})
    AND (r.any_child_wakes OR r.children_left = 0 OR c.status <> 'completed')
UNION ALL
SELECT id, 'waits for nothing' FROM runtrue_runs AS r
WHERE status = 'waiting' AND ready_at >= :never
    AND NOT EXISTS (SELECT 1 FROM runtrue_waits WHERE run_id = r.id AND closed_at IS NULL)

-- name: waits_end_with_their_run
SELECT w.run_id, 'is ' || r.status || ' and still waits at ' || w.branch || '.' || w.ordinal
FROM runtrue_waits AS w JOIN runtrue_runs AS r ON r.id = w.run_id
WHERE w.closed_at IS NULL AND r.status IN ({{terminal}})

-- name: a_wait_has_its_result
SELECT run_id, 'has a wait at ' || branch || '.' || ordinal || ' that was ' || outcome || ', and no step there'
FROM runtrue_waits AS w
WHERE outcome IN ('met', 'expired') AND NOT EXISTS (
    SELECT 1 FROM runtrue_steps WHERE run_id = w.run_id AND branch = w.branch AND ordinal = w.ordinal)

-- name: a_received_message_has_its_receiver
SELECT run_id, 'has received message ' || seq || ' at ' || received_branch || '.' || received_ordinal
    || ', and no wait was met there'
FROM runtrue_messages AS m
WHERE received_at IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM runtrue_waits
    WHERE run_id = m.run_id AND branch = m.received_branch AND ordinal = m.received_ordinal AND outcome = 'met')

-- name: children_are_counted
SELECT id, 'counts ' || children_left || ' children that it waits for, there are ' || found FROM (
    SELECT id, children_left, (
        SELECT count(*) FROM runtrue_waits AS w JOIN runtrue_runs AS c ON c.id = w.subject AND c.finished_at IS NULL
        WHERE w.run_id = r.id AND w.kind = 'child' AND w.closed_at IS NULL) AS found
    FROM runtrue_runs AS r)
WHERE children_left <> found

-- name: holds_are_counted
SELECT id, 'counts ' || open_run_holds || ' open holds, there are ' || found FROM (
    SELECT id, open_run_holds, (SELECT count(*) FROM runtrue_holds WHERE run_id = r.id AND closed_at IS NULL) AS found
    FROM runtrue_runs AS r)
WHERE open_run_holds <> found

-- name: history_is_whole
SELECT id, 'counts ' || event_seq || ' happenings, ' || found || ' are recorded, the last one is ' || last FROM (
    SELECT id, event_seq,
        (SELECT count(*) FROM runtrue_events WHERE run_id = r.id)
            + (SELECT count(*) FROM runtrue_steps WHERE run_id = r.id)
            + (SELECT count(*) FROM runtrue_attempts WHERE run_id = r.id) AS found,
        max(coalesce((SELECT max(seq) FROM runtrue_events WHERE run_id = r.id), 0),
            coalesce((SELECT max(seq) FROM runtrue_steps WHERE run_id = r.id), 0),
            coalesce((SELECT max(seq) FROM runtrue_attempts WHERE run_id = r.id), 0)) AS last
    FROM runtrue_runs AS r)
WHERE event_seq <> found OR event_seq <> last

-- name: an_end_has_its_payload
SELECT id, 'is ' || status || ' and its result is not recorded' FROM runtrue_runs AS r
WHERE status IN ('completed', 'failed') AND NOT EXISTS (
    SELECT 1 FROM runtrue_run_payloads
    WHERE run_id = r.id AND kind = CASE r.status WHEN 'completed' THEN 'output' ELSE 'error' END)
UNION ALL
SELECT id, 'has no recorded input' FROM runtrue_runs AS r
WHERE NOT EXISTS (SELECT 1 FROM runtrue_run_payloads WHERE run_id = r.id AND kind = 'input')

-- name: digests
SELECT r.id, r.steps_done, r.history_digest, s.digest
FROM runtrue_runs AS r LEFT JOIN runtrue_steps AS s ON s.run_id = r.id
ORDER BY r.id
