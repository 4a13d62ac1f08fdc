-- name: version_table
CREATE TABLE IF NOT EXISTS runtrue_schema_version (version INTEGER NOT NULL PRIMARY KEY, applied_at INTEGER NOT NULL)

-- name: has_version_table
SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'runtrue_schema_version'

-- name: version
SELECT coalesce(max(version), 0) FROM runtrue_schema_version

-- name: applied
INSERT INTO runtrue_schema_version (version, applied_at) VALUES (:version, :now)

-- Ours are those whose names begin as the names of our tables do, on such a table. Others have triggers of their own.
-- name: triggers
SELECT name, sql FROM sqlite_master
WHERE type = 'trigger' AND name LIKE 'runtrue\_%' ESCAPE '\' AND tbl_name LIKE 'runtrue\_%' ESCAPE '\'

-- name: triggers_of_others
SELECT name, tbl_name FROM sqlite_master
WHERE type = 'trigger' AND name LIKE 'runtrue\_%' ESCAPE '\' AND tbl_name NOT LIKE 'runtrue\_%' ESCAPE '\'
