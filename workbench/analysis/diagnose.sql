-- What the rules of `workbench diagnose` read of a run.

-- rule: dead_prompts, solved_prompts
SELECT prompt_id, count(correct) AS tries, sum(correct) AS solved, count(DISTINCT step) AS steps,
    sum(correct) FILTER (step > (SELECT max(step) FROM steps WHERE run = $run) * 0.7) AS solved_late,
    count(correct) FILTER (step > (SELECT max(step) FROM steps WHERE run = $run) * 0.7) AS tries_late
FROM rollouts
WHERE run = $run AND purpose = 'train' AND context = '' AND origin IN ('generated', 'carried') AND correct IS NOT NULL
GROUP BY prompt_id ORDER BY prompt_id

-- rule: collapsing_entropy
SELECT step, avg(list_avg(entropy[1 + len(list_filter(coalesce(role, []), lambda r: r = 1)):])) AS entropy FROM completions
WHERE run = $run AND row >= 0 AND entropy IS NOT NULL GROUP BY step ORDER BY step

-- rule: constant_reward_part
SELECT part, count(value) AS n, min(value) AS low, max(value) AS high, count(DISTINCT step) AS steps
FROM rewards JOIN rollouts USING (run, rank, step, row) WHERE run = $run AND rewards.row >= 0 AND purpose = 'train' GROUP BY part ORDER BY part

-- rule: length_explosion
SELECT step, avg(length) AS length, avg((finish = 'length')::INTEGER) AS cut FROM rollouts
WHERE run = $run AND purpose = 'train' GROUP BY step ORDER BY step

-- rule: verifier_failures
SELECT failure, count(*) AS n, (SELECT count(*) FROM rollouts WHERE run = $run AND purpose <> 'eval') AS total,
    (SELECT arg_min(message, step) FROM events WHERE run = $run AND source = 'step' AND subject = failure) AS told
FROM rollouts WHERE run = $run AND purpose <> 'eval' AND failure <> '' GROUP BY failure ORDER BY n DESC

-- rule: stale_ratios
WITH token AS (
    SELECT step, unnest(role) AS role, unnest(logp) AS behaviour, unnest(coalesce(current, proximal)) AS policy
    FROM completions WHERE run = $run AND row >= 0 AND logp IS NOT NULL AND coalesce(current, proximal) IS NOT NULL
) SELECT step, avg((exp(policy - behaviour) NOT BETWEEN 0.8 AND 1.25)::INTEGER) AS outside, count(*) AS n
FROM token WHERE role IS DISTINCT FROM 1 GROUP BY step ORDER BY step

-- rule: miscalibrated_beliefs
WITH outcome AS (
    SELECT prompt_id, step, step - 1 AS before, sum(correct) AS solved, count(correct) AS tried FROM rollouts
    WHERE run = $run AND purpose = 'train' AND context = '' AND origin IN ('generated', 'carried')
        AND correct IS NOT NULL
    GROUP BY prompt_id, step
) SELECT b.method, o.solved / o.tried AS rate, o.tried AS n, b.mean, b.low, b.high
FROM outcome o ASOF JOIN (SELECT * FROM beliefs WHERE run = $run AND mean IS NOT NULL) b
    ON b.prompt_id = o.prompt_id AND o.before >= b.step
WHERE b.method IN (SELECT method FROM beliefs WHERE run = $run GROUP BY method ORDER BY method LIMIT 1)

-- rule: idle_groups
SELECT step, avg((a.value = 0)::INTEGER) AS idle FROM rollouts r
JOIN advantages a USING (run, rank, step, row) JOIN fates f USING (run, rank, step, row)
WHERE r.run = $run AND r.purpose = 'train' AND a.term = 'final' AND f.fate <> 'failed' GROUP BY step ORDER BY step
