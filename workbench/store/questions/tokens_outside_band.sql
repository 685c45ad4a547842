-- At which tokens had the policy moved furthest from the one that sampled them? Those of a hint were not sampled.
-- $run = latest: run id
-- $low = 0.8: ratio of the two policies below which a token is outside
-- $high = 1.25: ratio above which it is
-- $since = 0: only steps after this one
-- $limit = 100: at most so many, the furthest first
WITH token AS (
    SELECT rank, step, row, rollout_id, unnest(range(len(logp))) AS position, unnest(tokens) AS token, unnest(logp) AS behaviour,
        unnest(role) AS role, unnest(coalesce(current, proximal)) AS policy
    FROM completions WHERE run = $run AND step > $since AND row >= 0 AND logp IS NOT NULL
        AND coalesce(current, proximal) IS NOT NULL
), ratio AS (
    SELECT *, exp(policy - behaviour) AS ratio FROM token WHERE role IS DISTINCT FROM 1
)
SELECT t.step, t.rank, t.rollout_id, r.prompt_id, t.position, t.token, t.behaviour, t.policy, t.ratio, a.value AS advantage
FROM ratio t JOIN rollouts r ON r.run = $run AND r.rank = t.rank AND r.step = t.step AND r.row = t.row
LEFT JOIN advantages a ON a.run = $run AND a.rank = t.rank AND a.step = t.step AND a.row = t.row AND a.term = 'final'
WHERE t.ratio < $low OR t.ratio > $high
ORDER BY abs(ln(t.ratio)) DESC, t.step, t.rank, t.row, t.position LIMIT $limit
