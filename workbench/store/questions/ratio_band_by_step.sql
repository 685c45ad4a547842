-- Which share of the sampled tokens lay outside the ratio band, step by step? Of those whose log-probabilities were kept; a hint's were not sampled.
-- $run = latest: run id
-- $low = 0.8: ratio of the two policies below which a token is outside
-- $high = 1.25: ratio above which it is
-- $since = 0: only steps after this one
WITH token AS (
    SELECT step, unnest(role) AS role, unnest(logp) AS behaviour, unnest(coalesce(current, proximal)) AS policy
    FROM completions WHERE run = $run AND step > $since AND row >= 0 AND logp IS NOT NULL
        AND coalesce(current, proximal) IS NOT NULL
)
SELECT step, count(*) AS tokens, avg((exp(policy - behaviour) < $low)::INT) AS below,
    avg((exp(policy - behaviour) > $high)::INT) AS above, avg(exp(policy - behaviour)) AS mean_ratio,
    avg(behaviour - policy) AS log_ratio_down
FROM token WHERE role IS DISTINCT FROM 1 GROUP BY step ORDER BY step
