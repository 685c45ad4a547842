-- How many warnings and failures has a run had?
-- $run = latest: run id
SELECT kind, count(*) AS n
FROM events
WHERE run = $run
GROUP BY kind
