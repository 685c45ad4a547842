-- Which advantages push the wrong way, by step and estimator? Signs against a pooled reference of the same policy version.
-- $run = latest: run id
-- $since = 0: only steps after this one
-- $pool = 64: scored plain rollouts that make a reference `pool`; fewer are `small pool`: the group itself, mostly
-- $z = 2: standard errors from the reference within which a label is `ambiguous`, outside every rate
-- $tau = 1e-8: values within which a sign is 0
WITH reference AS (  -- b* = E[reward] of a prompt under one policy version; what it was made from is never mixed
    SELECT prompt_id, version, avg(reward) AS mean, count(reward) AS n,
        if(max(reward) > min(reward), stddev_samp(reward), 0) / sqrt(count(reward)) AS se
    FROM rollouts
    WHERE run = $run AND context = '' AND origin IN ('generated', 'carried') AND purpose <> 'eval' AND isfinite(reward)
    GROUP BY prompt_id, version
), compared AS (
    SELECT r.step, a.estimator, CASE WHEN f.n >= $pool THEN 'pool' ELSE 'small pool' END AS reference_kind, f.n,
        a.value AS advantage, r.reward - f.mean AS away, $z * f.se AS margin
    FROM advantages a JOIN rollouts r USING (run, rank, seq, step, row)
    LEFT JOIN reference f ON f.prompt_id = r.prompt_id AND f.version = r.version
    WHERE a.run = $run AND a.step > $since AND a.term = 'final' AND a.node_id IS NULL
        AND r.purpose = 'train' AND r.context = '' AND r.origin IN ('generated', 'carried') AND a.value IS NOT NULL AND f.n > 0
), labelled AS (
    SELECT *, CASE
        WHEN away IS NULL OR NOT isfinite(away) OR (margin > 0 AND abs(away) <= margin) THEN 'ambiguous'
        WHEN abs(away) <= $tau THEN if(abs(advantage) <= $tau, 'both_zero', 'spurious')
        WHEN abs(advantage) <= $tau THEN 'vanish'
        WHEN sign(advantage) = sign(away) THEN 'ok' ELSE 'hard' END AS label
    FROM compared
)
SELECT step, estimator, reference_kind, count(*) AS rollouts,
    count(*) FILTER (label = 'ok') AS ok, count(*) FILTER (label = 'hard') AS hard,
    count(*) FILTER (label = 'vanish') AS vanish, count(*) FILTER (label = 'spurious') AS spurious,
    count(*) FILTER (label = 'both_zero') AS both_zero, count(*) FILTER (label = 'ambiguous') AS ambiguous,
    hard / nullif(ok + hard + vanish, 0) AS hard_rate, vanish / nullif(ok + hard + vanish, 0) AS vanish_rate,
    spurious / nullif(spurious + both_zero, 0) AS spurious_rate,
    coalesce(sum(abs(away)) FILTER (label = 'hard'), 0)
        / nullif(sum(abs(away)) FILTER (label IN ('ok', 'hard', 'vanish')), 0) AS hard_reward_mass,
    coalesce(sum(abs(advantage)) FILTER (label = 'hard'), 0)
        / nullif(sum(abs(advantage)) FILTER (label IN ('ok', 'hard', 'spurious')), 0) AS hard_gradient_mass,
    min(n) AS smallest_pool, max(n) AS largest_pool
FROM labelled GROUP BY step, estimator, reference_kind ORDER BY step, estimator, reference_kind
