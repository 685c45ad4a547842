-- Which parts is the reward of each completion of a group made of?
-- $run = latest: run id
-- $step: step
-- $group: group of the step, counted in its rank
-- $rank = 0: rank that recorded it; 0 where one process trains
SELECT w.rollout_id, w.part, w.value
FROM rewards w
JOIN rollouts r ON r.run = w.run AND r.rank = w.rank AND r.step = w.step AND r.row = w.row
WHERE r.run = $run AND r.rank = $rank AND r.step = $step AND r.group_id = $group AND r.purpose <> 'eval'
