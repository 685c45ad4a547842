-- What is the whole text of one completion?
-- $cut = 280: at most so many characters of each text
-- $run = latest: run id
-- $step: step
-- $rollout: rollout id
SELECT left(text, $cut) AS text, length(text) AS characters
FROM completions
WHERE run = $run AND step = $step AND rollout_id = $rollout
LIMIT 1
