-- What a run waits for. Each statement belongs to a transaction in which its run has passed the fence or was claimed.
-- The indexes are named because the planner knows nothing of a run with a hundred thousand closed waits.

-- name: add_wait
INSERT INTO runtrue_waits (run_id, branch, ordinal, kind, name, subject, opened_at, deadline_at, closed_at, outcome)
VALUES (:run_id, :branch, :ordinal, :kind, :name, :subject, :opened_at, :deadline_at, :closed_at, :outcome)

-- name: wait_at
SELECT branch, ordinal, kind, name, subject, opened_at, deadline_at, closed_at, outcome
FROM runtrue_waits WHERE run_id = :run_id AND branch = :branch AND ordinal = :ordinal

-- The oldest first, since two of them may want the same message. The last column tells those that may be met from those
-- that cannot be, so that ten thousand children are one statement.
-- name: open_waits
SELECT branch, ordinal, kind, name, subject, opened_at, deadline_at, closed_at, outcome,
    CASE kind
        WHEN 'child' THEN NOT EXISTS (SELECT 1 FROM runtrue_runs WHERE id = subject AND finished_at IS NULL)
        ELSE EXISTS (
            SELECT 1 FROM runtrue_messages INDEXED BY runtrue_messages_kept
            WHERE run_id = :run_id AND topic = subject AND received_at IS NULL)
    END
FROM runtrue_waits INDEXED BY runtrue_waits_open
WHERE run_id = :run_id AND closed_at IS NULL ORDER BY opened_at, branch, ordinal

-- name: who_waits
SELECT DISTINCT run_id FROM json_each(:run_ids) AS wanted
CROSS JOIN runtrue_waits AS w INDEXED BY runtrue_waits_open ON w.run_id = wanted.value AND w.closed_at IS NULL

-- name: close_wait
UPDATE runtrue_waits SET closed_at = :now, outcome = :outcome
WHERE run_id = :run_id AND branch = :branch AND ordinal = :ordinal AND closed_at IS NULL
RETURNING kind = 'child' AND EXISTS (SELECT 1 FROM runtrue_runs WHERE id = subject AND finished_at IS NULL)

-- A message goes back that the branch which has taken it never made use of.
-- name: unmeet
UPDATE runtrue_waits SET outcome = 'moot'
WHERE run_id = :run_id AND branch = :branch AND ordinal = :ordinal AND kind = 'receive' AND outcome = 'met'
RETURNING 1

-- name: give_back
UPDATE runtrue_messages SET received_at = NULL, received_branch = NULL, received_ordinal = NULL
WHERE run_id = :run_id AND received_branch = :branch AND received_ordinal = :ordinal

-- name: take_message
UPDATE runtrue_messages SET received_at = :now, received_branch = :branch, received_ordinal = :ordinal
WHERE run_id = :run_id AND received_at IS NULL AND seq = (
    SELECT min(seq) FROM runtrue_messages INDEXED BY runtrue_messages_kept
    WHERE run_id = :run_id AND topic = :topic AND received_at IS NULL)
RETURNING body

-- name: child
SELECT status, request_reason, o.body, e.body
FROM runtrue_runs AS r
LEFT JOIN runtrue_run_payloads AS o ON o.run_id = r.id AND o.kind = 'output'
LEFT JOIN runtrue_run_payloads AS e ON e.run_id = r.id AND e.kind = 'error'
WHERE r.id = :run_id

-- name: step_at
SELECT branch, ordinal, name, kind, attempt, output, error, started_at, finished_at, digest, wake_at, seq
FROM runtrue_steps WHERE run_id = :run_id AND branch = :branch AND ordinal = :ordinal

-- The steps that the store itself records count as those of a worker do. A message that is given back is a fact like one
-- that is sent: whoever waits for it looks again.
-- name: advance
UPDATE runtrue_runs
SET event_seq = event_seq + :count, steps_done = steps_done + :count, children_left = children_left + :children,
    wakeups = wakeups + :given_back,
    losses = CASE :count WHEN 0 THEN losses ELSE 0 END,
    history_digest = (history_digest | :digest) - (history_digest & :digest), updated_at = :now
WHERE id = :run_id
RETURNING event_seq

-- name: publish
INSERT INTO runtrue_published (run_id, key, body, at) VALUES (?, ?, ?, ?)
ON CONFLICT (run_id, key) DO UPDATE SET body = excluded.body, at = excluded.at

-- The runs that have ended wait for nothing any more.
-- name: close_moot
UPDATE runtrue_waits INDEXED BY runtrue_waits_open SET closed_at = :now, outcome = 'moot'
WHERE closed_at IS NULL AND run_id IN (SELECT value FROM json_each(:ended))

-- Who waits for the runs that have ended: for how many of them, whether one of these did not complete, and one of them.
-- name: parents
SELECT w.run_id, count(*), max(c.status <> 'completed'), max(w.subject)
FROM json_each(:ended) AS ended
CROSS JOIN runtrue_waits AS w INDEXED BY runtrue_waits_child
    ON w.subject = ended.value AND w.kind = 'child' AND w.closed_at IS NULL
CROSS JOIN runtrue_runs AS c ON c.id = w.subject
GROUP BY w.run_id

-- One event: that it was woken.
-- name: wake_parent
UPDATE runtrue_runs
SET status = {{to:wake}}, ready_at = :now, children_left = max(children_left - :count, 0), wakeups = wakeups + 1,
    event_seq = event_seq + 1, updated_at = :now
WHERE id = :run_id AND status IN ({{from:wake}}) AND (children_left <= :count OR :unsuccessful OR any_child_wakes)
RETURNING event_seq

-- name: tell_parent
UPDATE runtrue_runs SET children_left = max(children_left - :count, 0), wakeups = wakeups + 1, updated_at = :now
WHERE id = :run_id AND status NOT IN ({{terminal}})
