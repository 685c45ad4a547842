-- How many tests of each kind were made inside rollouts, and what came of them? Sampled rows count for those they stand for.
-- $run = latest: run id
-- $since = -1: only steps after this one
SELECT kind, outcome, sum(coalesce(weight, 1)) AS tests, count(*) AS rows, min(step) AS first_step, max(step) AS last_step
FROM decisions WHERE run = $run AND step > $since
GROUP BY kind, outcome ORDER BY kind, tests DESC, outcome
