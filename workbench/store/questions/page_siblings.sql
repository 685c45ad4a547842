-- How did each rollout of a group fare?
-- $run = latest: run id
-- $step: step
-- $group: group of the step, counted in its rank
-- $rank = 0: rank that recorded it; 0 where one process trains
SELECT r."row", r.rollout_id, r.reward, r.correct, a.value AS advantage, a.baseline, a.estimator, r.length, r.finish, r.version,
    r.parent, r.fork_at, f.fate, f.reason, f.tokens AS new_tokens
FROM rollouts r
LEFT JOIN advantages a ON a.run = $run AND a.step = $step AND a.rank = $rank AND a."row" = r."row" AND a.term = 'final'
    AND a.node_id IS NULL
LEFT JOIN fates f ON f.run = $run AND f.step = $step AND f.rank = $rank AND f."row" = r."row"
WHERE r.run = $run AND r.step = $step AND r.rank = $rank AND r.group_id = $group AND r.purpose <> 'eval'
ORDER BY r.reward DESC NULLS LAST, r."row" LIMIT 512
