-- What went wrong, or was worth a note?
-- $run = latest: run id
-- $last = 200: at most so many, newest first
SELECT step, time, source, kind, subject, message, count
FROM events WHERE run = $run ORDER BY time DESC, position DESC LIMIT $last
