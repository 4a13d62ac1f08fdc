-- How a worker lets go of a run, each statement under the fence and from the statuses of its move.

-- name: park_requested
UPDATE runtrue_runs
SET status = {{to:park_requested}}, worker_id = NULL, event_seq = event_seq + 1, updated_at = :now
WHERE id = :run_id AND epoch = :epoch AND worker_id = :worker_id AND status IN ({{from:park_requested}})
RETURNING status, wakeups, event_seq

-- Only while nothing has come in for the run since its worker last read the facts.
-- name: park_blocked
UPDATE runtrue_runs
SET status = CASE WHEN status = 'pausing' OR open_run_holds > 0 THEN 'paused' ELSE 'waiting' END,
    ready_at = :ready_at, any_child_wakes = :by_any_child, worker_id = NULL, event_seq = event_seq + 1, updated_at = :now
WHERE id = :run_id AND epoch = :epoch AND worker_id = :worker_id AND status IN ({{from:park_blocked}})
    AND wakeups = :wakeups
RETURNING status, wakeups, event_seq

-- Two events: the hold's and the status's.
-- name: park_held
UPDATE runtrue_runs
SET status = {{to:park_held}}, worker_id = NULL, open_run_holds = open_run_holds + 1, event_seq = event_seq + 2,
    updated_at = :now
WHERE id = :run_id AND epoch = :epoch AND worker_id = :worker_id AND status IN ({{from:park_held}})
RETURNING status, wakeups, event_seq

-- A cancel closes the holds when it is asked, so a cancelling run has none.
-- name: release
UPDATE runtrue_runs
SET status = {{to:release}}, worker_id = NULL, event_seq = event_seq + 1, updated_at = :now,
    finished_at = CASE WHEN {{to:release}} IN ({{terminal}}) THEN :now END,
    children_left = CASE WHEN {{to:release}} IN ({{terminal}}) THEN 0 ELSE children_left END
WHERE id = :run_id AND epoch = :epoch AND worker_id = :worker_id AND status IN ({{from:release}})
RETURNING status, wakeups, event_seq

-- A pause that was asked and not reached is left: its hold is closed as moot, one event each. The verb of the request
-- comes back because only a run that was ever asked to pause can have such holds.
-- name: finish_completed
UPDATE runtrue_runs
SET status = {{to:finish_completed}}, worker_id = NULL, finished_at = :now, updated_at = :now,
    event_seq = event_seq + open_run_holds + 1, open_run_holds = 0, children_left = 0
WHERE id = :run_id AND epoch = :epoch AND worker_id = :worker_id AND status IN ({{from:finish_completed}})
RETURNING status, wakeups, event_seq, request_verb

-- name: finish_failed
UPDATE runtrue_runs
SET status = {{to:finish_failed}}, worker_id = NULL, finished_at = :now, updated_at = :now,
    event_seq = event_seq + open_run_holds + 1, open_run_holds = 0, children_left = 0
WHERE id = :run_id AND epoch = :epoch AND worker_id = :worker_id AND status IN ({{from:finish_failed}})
RETURNING status, wakeups, event_seq, request_verb

-- A cancel from inside is a request that the workflow itself made.
-- name: finish_cancelled
UPDATE runtrue_runs
SET status = {{to:finish_cancelled}}, worker_id = NULL, finished_at = :now, updated_at = :now,
    event_seq = event_seq + open_run_holds + 1, open_run_holds = 0, children_left = 0,
    request_verb = 'cancel',
    request_by = CASE status WHEN 'cancelling' THEN request_by ELSE 'workflow' END,
    request_at = CASE status WHEN 'cancelling' THEN request_at ELSE :now END,
    request_reason = CASE status WHEN 'cancelling' THEN request_reason ELSE :reason END
WHERE id = :run_id AND epoch = :epoch AND worker_id = :worker_id AND status IN ({{from:finish_cancelled}})
RETURNING status, wakeups, event_seq, request_verb

-- name: run
SELECT status, wakeups, event_seq, epoch, worker_id FROM runtrue_runs WHERE id = ?
