-- When, from which step, by which version and on what machine was the run opened?
-- $run = latest: run id
SELECT rank, attempt, from_step, started, code_version, machine FROM attempts WHERE run = $run ORDER BY attempt, rank
