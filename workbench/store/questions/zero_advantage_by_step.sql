-- Which share of the scored training rollouts met a zero advantage, step by step?
-- $run = latest: run id
-- $since = 0: only steps after this one
SELECT step, avg(coalesce(zero, value = 0 AND (tokens IS NULL OR coalesce(list_max(tokens) = 0 AND list_min(tokens) = 0, true)))::INT)
    AS zero_advantage, count(*) AS rollouts
FROM advantages
WHERE run = $run AND step > $since AND term = 'final' AND reason NOT IN ('purpose', 'null_reward')
GROUP BY step ORDER BY step
