-- Where did the time go?
-- $run = latest: run id
-- $since = 0: only steps after this one
SELECT step, phase, max(seconds) AS seconds FROM timings WHERE run = $run AND step > $since
GROUP BY step, phase ORDER BY step, phase
