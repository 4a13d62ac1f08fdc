-- The open holds are closed as moot with it, one event each.
-- name: cancel
UPDATE runtrue_runs
SET status = {{to:cancel}}, event_seq = event_seq + open_run_holds + 1, open_run_holds = 0,
    children_left = CASE {{to:cancel}} WHEN 'cancelled' THEN 0 ELSE children_left END,
    finished_at = CASE {{to:cancel}} WHEN 'cancelled' THEN :now END,
    request_verb = 'cancel', request_by = :actor, request_at = :now, request_reason = :reason, updated_at = :now
WHERE id = :run_id AND status IN ({{from:cancel}})
RETURNING status, event_seq

-- name: terminate
UPDATE runtrue_runs
SET status = {{to:terminate}}, event_seq = event_seq + open_run_holds + 1, open_run_holds = 0,
    children_left = 0,
    finished_at = :now, worker_id = NULL,
    request_verb = 'terminate', request_by = :actor, request_at = :now, request_reason = :reason, updated_at = :now
WHERE id = :run_id AND status IN ({{from:terminate}})
RETURNING status, event_seq
