-- Where did the time go?
-- $run = latest: run id
-- $since = 0: only steps after this one
SELECT step, phase, seconds FROM timings WHERE run = $run AND step > $since ORDER BY step, phase
