-- Which methods recorded beliefs lately?
-- $run = latest: run id
-- $since = -1: only steps after this one
SELECT method, max(step) AS step
FROM beliefs
WHERE run = $run AND step > $since
GROUP BY method
ORDER BY method
