-- The least that a durable step needs: one row of its run that is owned, fenced and counted, one row of its result.

-- name: schema
CREATE TABLE runs (
  id TEXT NOT NULL PRIMARY KEY,
  status TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  worker_id TEXT NOT NULL,
  event_seq INTEGER NOT NULL,
  steps_done INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE steps (
  run_id TEXT NOT NULL,
  ordinal INTEGER NOT NULL,
  name TEXT NOT NULL,
  output BLOB NOT NULL,
  finished_at INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  PRIMARY KEY (run_id, ordinal)
) WITHOUT ROWID;

-- name: start_run
INSERT INTO runs (id, status, epoch, worker_id, event_seq, steps_done) VALUES (?, 'running', 1, ?, 0, 0);

-- name: fence
UPDATE runs SET event_seq = event_seq + 1, steps_done = steps_done + 1
 WHERE id = ? AND epoch = ? AND worker_id = ? AND status IN ('running', 'pausing', 'cancelling')
RETURNING status, event_seq;

-- name: record_step
INSERT INTO steps (run_id, ordinal, name, output, finished_at, seq) VALUES (?, ?, ?, ?, ?, ?);
