-- What did the update report?
-- $run = latest: run id
-- $since = 0: only steps after this one
SELECT step, rank, name, value, text FROM metrics WHERE run = $run AND step > $since ORDER BY name, step, rank
