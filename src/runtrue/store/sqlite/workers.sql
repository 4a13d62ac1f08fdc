-- name: register
INSERT INTO runtrue_workers (id, host, pid, status, started_at, heartbeat_at, lease_until, loop_seen_at, slots, serves)
VALUES (:id, :host, :pid, 'alive', :now, :now, :lease_until, :now, :slots, :serves)

-- name: renew
UPDATE runtrue_workers
SET heartbeat_at = :now, lease_until = :lease_until, loop_seen_at = :loop_seen_at, in_flight = :in_flight,
    stalled_in = :stalled_in, fenced_writes = :fenced_writes
WHERE id = :id AND status = 'alive'

-- name: owned_runs
SELECT id, epoch, status, wakeups FROM runtrue_runs WHERE worker_id = :id ORDER BY id

-- name: retire
UPDATE runtrue_workers SET status = 'stopped', heartbeat_at = :now WHERE id = :id AND status = 'alive'

-- name: workers
SELECT serves, in_flight, id, host, pid, status, started_at, heartbeat_at, lease_until, loop_seen_at, slots, stalled_in,
    (SELECT count(*) FROM runtrue_runs WHERE worker_id = w.id), fenced_writes
FROM runtrue_workers AS w ORDER BY started_at, id
