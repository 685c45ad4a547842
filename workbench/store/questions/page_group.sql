-- What did one group answer, and how was each completion rewarded and used?
-- $cut = 280: at most so many characters of each text
-- $run = latest: run id
-- $step: step
-- $group: group of the step, counted in its rank
-- $rank = 0: rank that recorded it; 0 where one process trains
SELECT r.rollout_id, left(c.text, $cut) AS text, length(c.text) AS characters, left(c.answer, $cut) AS answer,
       r.reward, r.correct, a.value AS advantage, a.baseline, r.length, r.finish, f.fate, f.reason
FROM rollouts r
LEFT JOIN completions c
    ON c.run = $run AND c.step = $step AND c.rank = $rank AND c.row = r.row
LEFT JOIN advantages a
    ON a.run = r.run AND a.rank = r.rank AND a.step = r.step AND a.row = r.row AND a.term = 'final'
LEFT JOIN fates f ON f.run = r.run AND f.rank = r.rank AND f.step = r.step AND f.row = r.row
WHERE r.run = $run AND r.rank = $rank AND r.step = $step AND r.group_id = $group AND r.purpose <> 'eval'
ORDER BY r.reward DESC NULLS LAST, r.rollout_id
LIMIT 64
