-- Which share of the rollouts met a zero advantage, step by step?
-- $run = latest: run id
-- $since = 0: only steps after this one
SELECT step, avg((reason = 'zero_advantage')::INT) AS zero_advantage, count(*) AS rollouts
FROM fates WHERE run = $run AND step > $since AND purpose = 'train' GROUP BY step ORDER BY step
