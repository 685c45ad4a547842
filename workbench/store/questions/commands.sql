-- What did the researcher do, and when?
-- $run = latest: run id
SELECT step, time, kind, payload, who FROM commands WHERE run = $run ORDER BY time
