-- Which tests for a fork or a cut were made on the rollouts of a group, with which numbers, and what came of them?
-- $run = latest: run id
-- $step: step
-- $group: group of the step, counted in its rank
-- $rank = 0: rank that recorded it; 0 where one process trains
WITH mine AS (
    SELECT rollout_id AS node_id FROM rollouts
    WHERE run = $run AND step = $step AND rank = $rank AND group_id = $group AND "row" >= 0
    UNION
    SELECT node_id FROM nodes WHERE run = $run AND step = $step AND rank = $rank AND group_id = $group
)
SELECT d.node_id, d.at_token, d.kind, d.outcome, d.inputs, d.weight
FROM decisions d SEMI JOIN mine USING (node_id)
WHERE d.run = $run AND d.step = $step AND d.rank = $rank ORDER BY d.position
