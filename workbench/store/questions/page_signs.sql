-- Which advantages push the wrong way, by step, estimator, group size and difficulty? Against the pool of their policy version.
-- $run = latest: run id
-- $since = 0: only steps after this one
-- $pool = 64: scored plain rollouts that make a reference `pool`; fewer are `small pool`: the group itself, mostly
-- $z = 2: standard errors from the reference within which a label is `ambiguous`, outside every rate
-- $tau = 1e-8: values within which a sign is 0
-- $back = 8: versions that reach over so many steps before still count
-- $bins = 5: difficulty bins of equal width, over the range of rewards of the run
WITH span AS (
    SELECT least(min(reward), 0) AS low, greatest(max(reward), 0) AS high FROM rollouts WHERE run = $run AND purpose = 'train' AND isfinite(reward)
), reference AS (
    SELECT prompt_id, version, avg(reward) AS mean, count(reward) AS n,
        if(max(reward) > min(reward), stddev_samp(reward), 0) / sqrt(count(reward)) AS se
    FROM rollouts
    WHERE run = $run AND step > $since - $back AND context = '' AND origin IN ('generated', 'carried') AND purpose <> 'eval'
        AND isfinite(reward)
    GROUP BY prompt_id, version
), compared AS (
    SELECT r.step, a.estimator, CASE WHEN f.n >= $pool THEN 'pool' ELSE 'small pool' END AS kind,
        count(*) OVER (PARTITION BY r.step, r.rank, r.group_id) AS size,
        least(floor($bins * (f.mean - s.low) / nullif(s.high - s.low, 0)), $bins - 1)::INTEGER AS bin,
        a.value AS advantage, r.reward - f.mean AS away, $z * f.se AS margin
    FROM advantages a JOIN rollouts r USING (run, rank, seq, step, "row") CROSS JOIN span s
    JOIN reference f ON f.prompt_id = r.prompt_id AND f.version = r.version
    WHERE a.run = $run AND a.step > $since AND a.term = 'final' AND a.node_id IS NULL AND a.keep
        AND r.purpose = 'train' AND r.context = '' AND a.value IS NOT NULL AND f.n > 0
    QUALIFY r.origin IN ('generated', 'carried') -- those used again belong to the group, and count where they were made
), labelled AS (
    SELECT *, CASE
        WHEN away IS NULL OR NOT isfinite(away) OR (margin > 0 AND abs(away) <= margin) THEN 'ambiguous'
        WHEN abs(away) <= $tau THEN if(abs(advantage) <= $tau, 'both_zero', 'spurious')
        WHEN abs(advantage) <= $tau THEN 'vanish'
        WHEN sign(advantage) = sign(away) THEN 'ok' ELSE 'hard' END AS label
    FROM compared
)
SELECT step, estimator, kind, size, coalesce(bin, 0) AS bin, count(*) AS n, count(*) FILTER (label = 'hard') AS hard,
    count(*) FILTER (label = 'vanish') AS vanish, count(*) FILTER (label IN ('ok', 'hard', 'vanish')) AS signed,
    count(*) FILTER (label = 'spurious') AS spurious, count(*) FILTER (label IN ('spurious', 'both_zero')) AS zero,
    count(*) FILTER (label = 'ambiguous') AS unclear
FROM labelled GROUP BY ALL ORDER BY step, estimator, kind, size, bin
