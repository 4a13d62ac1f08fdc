-- Runs that are held because their code did not fit, and were never held by this very code; with the number of such holds.
-- name: may_fit
SELECT h.run_id, count(*)
FROM json_each(:code_digests) AS served
CROSS JOIN runtrue_holds AS h INDEXED BY runtrue_holds_open ON h.closed_at IS NULL AND h.kind = 'code_mismatch'
CROSS JOIN runtrue_runs AS r ON r.id = h.run_id
    AND r.workflow = json_extract(served.value, '$[0]') AND r.version = json_extract(served.value, '$[1]')
WHERE NOT EXISTS (
    SELECT 1 FROM runtrue_holds
    WHERE run_id = h.run_id AND kind = 'code_mismatch' AND code_digest = json_extract(served.value, '$[2]'))
GROUP BY h.run_id

-- `:closing` holds are closed with it. While another one is open the run stays paused.
-- name: code_fits
UPDATE runtrue_runs
SET status = CASE WHEN open_run_holds > :closing THEN status ELSE {{to:code_fits}} END,
    ready_at = CASE WHEN open_run_holds > :closing THEN ready_at ELSE :now END,
    event_seq = event_seq + :closing + CASE WHEN open_run_holds > :closing THEN 0 ELSE 1 END,
    open_run_holds = open_run_holds - :closing, wakeups = wakeups + 1, updated_at = :now
WHERE id = :run_id AND status IN ({{from:code_fits}})
RETURNING event_seq, open_run_holds
