-- Is the run paused, by what was last commanded since it was opened?
-- $run = latest: run id
WITH last AS (
    SELECT kind, step + coalesce(TRY_CAST(payload->>'n' AS INTEGER), 1) - 1 AS until FROM commands
    WHERE run = $run AND kind IN ('pause', 'resume', 'step')
    AND time >= (SELECT max(started) FROM attempts WHERE run = $run)
    ORDER BY time DESC, seq DESC LIMIT 1
)
SELECT coalesce((SELECT kind = 'pause' OR (kind = 'step' AND until <= (SELECT max(step) FROM steps WHERE run = $run))
    FROM last), false) AS paused
FROM runs WHERE run = $run
