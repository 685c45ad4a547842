-- What is the whole text of one completion?
-- $cut = 280: at most so many characters of each text
-- $run = latest: run id
-- $step: step
-- $rollout: rollout id
-- $rank = 0: rank that recorded it; 0 where one process trains
SELECT left(text, $cut) AS text, length(text) AS characters
FROM completions
WHERE run = $run AND rank = $rank AND step = $step AND rollout_id = $rollout
LIMIT 1
