-- name: stored_reply
SELECT verb, pause_id, hold_id, value, reply FROM runtrue_commands WHERE run_id = :run_id AND request_id = :request_id

-- name: store_reply
INSERT INTO runtrue_commands (run_id, request_id, verb, pause_id, hold_id, value, actor, reason, at, answer, status,
    reply)
VALUES (:run_id, :request_id, :verb, :pause_id, :hold_id, :value, :actor, :reason, :now, :answer, :status, :reply)

-- name: run
SELECT status, worker_id, request_verb, request_by, request_at, request_reason FROM runtrue_runs WHERE id = :run_id

-- Two events: the hold's and the status's.
-- name: pause
UPDATE runtrue_runs
SET status = {{to:pause}}, open_run_holds = open_run_holds + 1, event_seq = event_seq + 2,
    request_verb = 'pause', request_by = :actor, request_at = :now, request_reason = :reason, updated_at = :now
WHERE id = :run_id AND status IN ({{from:pause}})
RETURNING status, event_seq

-- name: pause_paused
UPDATE runtrue_runs
SET open_run_holds = open_run_holds + 1, event_seq = event_seq + 1,
    request_verb = 'pause', request_by = :actor, request_at = :now, request_reason = :reason, updated_at = :now
WHERE id = :run_id AND status = 'paused'
    AND NOT EXISTS (SELECT 1 FROM runtrue_holds WHERE run_id = :run_id AND kind = 'operator' AND closed_at IS NULL)
RETURNING status, event_seq

-- `:closing` holds are closed with it. While another one is open a paused run stays paused. A run that never started
-- keeps the time it was asked to start at.
-- name: resume
UPDATE runtrue_runs
SET status = CASE WHEN open_run_holds > :closing THEN status ELSE {{to:resume}} END,
    ready_at = CASE WHEN status <> 'paused' OR open_run_holds > :closing THEN ready_at
        WHEN started_at IS NULL THEN max(ready_at, :now) ELSE :now END,
    event_seq = event_seq + :closing + CASE WHEN open_run_holds > :closing THEN 0 ELSE 1 END,
    open_run_holds = open_run_holds - :closing, wakeups = wakeups + 1,
    request_verb = NULL, request_by = NULL, request_at = NULL, request_reason = NULL, updated_at = :now
WHERE id = :run_id AND status IN ({{from:resume}}) AND open_run_holds >= :closing
RETURNING status, event_seq, open_run_holds

-- name: answer_retry
UPDATE runtrue_runs
SET status = CASE WHEN open_run_holds > 1 THEN status ELSE {{to:answer}} END,
    ready_at = CASE WHEN open_run_holds > 1 THEN ready_at ELSE :now END,
    event_seq = event_seq + CASE WHEN open_run_holds > 1 THEN 1 ELSE 2 END,
    open_run_holds = open_run_holds - 1, wakeups = wakeups + 1, losses = 0, updated_at = :now
WHERE id = :run_id AND status IN ({{from:answer}})
RETURNING status, event_seq, open_run_holds

-- name: answer_fail
UPDATE runtrue_runs
SET status = {{to:answer_fail}}, event_seq = event_seq + open_run_holds + 1, open_run_holds = 0, children_left = 0,
    finished_at = :now, updated_at = :now
WHERE id = :run_id AND status IN ({{from:answer_fail}})
RETURNING event_seq

-- name: add_error
INSERT INTO runtrue_run_payloads (run_id, kind, body) VALUES (:run_id, 'error', :body)

-- A run that waits for a message of this topic goes on with it. Two events: the message, and that it has woken the run.
-- name: send_and_wake
UPDATE runtrue_runs
SET status = {{to:send}}, ready_at = :now, wakeups = wakeups + 1, event_seq = event_seq + 2, updated_at = :now
WHERE id = :run_id AND status IN ({{from:send}}) AND EXISTS (
    SELECT 1 FROM runtrue_waits INDEXED BY runtrue_waits_open
    WHERE run_id = :run_id AND closed_at IS NULL AND kind = 'receive' AND subject = :topic)
RETURNING event_seq

-- name: send
UPDATE runtrue_runs SET wakeups = wakeups + 1, event_seq = event_seq + 1, updated_at = :now
WHERE id = :run_id AND status IN ({{accepts:send}})
RETURNING event_seq

-- name: add_message
INSERT INTO runtrue_messages (run_id, seq, topic, request_id, sent_by, sent_at, body)
VALUES (:run_id, :seq, :topic, :request_id, :actor, :now, :body)

-- name: message_sent
SELECT body FROM runtrue_messages WHERE run_id = :run_id AND request_id = :request_id
