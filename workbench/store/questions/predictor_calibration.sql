-- Do the chances of success that methods predict inside rollouts come true? In bins of the prediction, by what used it.
-- $run = latest: run id
-- $since = -1: only steps after this one
-- $bins = 10: bins of equal width
WITH told AS (  -- what was cut has no outcome: survivors stand for them by the chance they had
    SELECT 'prune' AS used_for, d.inputs['q'] AS predicted, r.correct, d.weight / d.inputs['propensity'] AS weight
    FROM decisions d JOIN rollouts r ON r.run = d.run AND r.rank = d.rank AND r.step = d.step AND r.rollout_id = d.node_id
    WHERE d.run = $run AND d.step > $since AND d.inputs['q'] IS NOT NULL
    UNION ALL
    SELECT 'continue', a.why['value'], r.correct, 1
    FROM asks a JOIN rollouts r USING (run, rank, step, ask)
    WHERE a.run = $run AND a.step > $since AND a.start_kind = 'node' AND a.why['value'] IS NOT NULL
)
SELECT used_for, least(floor(predicted * $bins), $bins - 1)::INTEGER AS bin, count(*) AS n,
    sum(weight * predicted) / sum(weight) AS predicted, sum(weight * correct) / sum(weight) AS correct
FROM told WHERE correct IS NOT NULL GROUP BY ALL ORDER BY used_for, bin
