-- Do advantages point the wrong way more often than the size of the groups explains? By step and estimator.
-- $run = latest: run id
-- The true sign is that of reward - b*: b* is the mean of the prompt's other groups at most 10 steps away, 8 rollouts at
-- least; within two standard errors nothing is said. hard: the recorded advantage has the other sign. explained: the
-- reward less the mean of its own group would have had it, for the same rollouts and the same b*.
WITH own AS (
    SELECT prompt_id, step, rank, group_id, count(reward) AS n, sum(reward) AS total, sum(reward * reward) AS squares
    FROM rollouts
    WHERE run = $run AND purpose = 'train' AND context = '' AND isfinite(reward) AND origin IN ('generated', 'carried')
    GROUP BY ALL
), around AS (
    SELECT step, rank, group_id, total / n AS own_mean, sum(n) OVER near - n AS others,
        sum(total) OVER near - total AS others_total, sum(squares) OVER near - squares AS others_squares
    FROM own WINDOW near AS (PARTITION BY prompt_id ORDER BY step RANGE BETWEEN 10 PRECEDING AND 10 FOLLOWING)
), reference AS (
    SELECT step, rank, group_id, own_mean, others_total / others AS mean,
        sqrt(greatest(others_squares / others - power(others_total / others, 2), 0) / (others - 1)) AS error
    FROM around WHERE others >= 8
), compared AS (
    SELECT r.step, a.estimator, a.value AS advantage, r.reward - f.mean AS away, r.reward - f.own_mean AS plain
    FROM advantages a JOIN rollouts r USING (run, rank, seq, step, "row") JOIN reference f USING (step, rank, group_id)
    WHERE a.run = $run AND a.term = 'final' AND a.node_id IS NULL AND a.keep AND r.purpose = 'train' AND r.context = ''
        AND r.origin IN ('generated', 'carried') AND isfinite(r.reward) AND isfinite(a.value) AND abs(r.reward - f.mean) > greatest(2 * f.error, 1e-8)
)
SELECT step, estimator, count(*) AS rollouts,
    count(*) FILTER (abs(advantage) > 1e-8 AND sign(advantage) <> sign(away)) AS hard,
    count(*) FILTER (abs(plain) > 1e-8 AND sign(plain) <> sign(away)) AS explained,
    count(*) FILTER (abs(advantage) <= 1e-8) AS vanish
FROM compared GROUP BY step, estimator ORDER BY step, estimator
