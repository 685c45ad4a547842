-- What the rules of `workbench diagnose` read of a run.

-- rule: no_reward, nothing_solved, constant_reward, cut_off, groups_of_one, nothing_trained
WITH size AS (
    SELECT step, max(n) AS largest FROM (
        SELECT step, group_id, count(*) AS n FROM rollouts WHERE run = $run AND purpose = 'train' GROUP BY ALL
    ) GROUP BY step
)
SELECT r.step, count(*) AS n, count(r.reward) AS scored, min(r.reward) AS low, max(r.reward) AS high,
    avg(r.correct) AS correct, avg((r.finish = 'length')::INTEGER) AS cut, any_value(s.largest) AS largest,
    count(*) FILTER (f.fate = 'failed') AS failed,
    count(*) FILTER (f.fate = 'trained' AND NOT coalesce(a.zero, a.value = 0)) AS signal, mode(f.reason) AS reason
FROM rollouts r JOIN fates f USING (run, rank, step, row) JOIN size s ON s.step = r.step
    LEFT JOIN (SELECT * FROM advantages WHERE term = 'final' AND row IS NOT NULL AND node_id IS NULL) a
    USING (run, rank, step, row)
WHERE r.run = $run AND r.purpose = 'train' GROUP BY r.step ORDER BY r.step

-- rule: never_acted
SELECT (SELECT arg_max(pipeline, attempt) FROM attempts WHERE run = $run) AS pipeline,
    (SELECT count(*) FROM steps WHERE run = $run) AS steps,
    (SELECT count(*) FROM asks WHERE run = $run AND (start_kind <> 'prompt' OR context <> '')) AS amend,
    (SELECT count(*) FROM asks WHERE run = $run AND round > 0) AS more,
    (SELECT count(*) FROM rollouts WHERE run = $run AND fork_at >= 0) AS branch,
    (SELECT count(*) FROM fates WHERE run = $run AND fate = 'pruned') AS prune,
    (SELECT count(*) FROM fates WHERE run = $run AND reason = 'not_admitted') AS admit,
    (SELECT count(*) FROM fates WHERE run = $run AND origin IN ('replayed', 'foreign')) AS replay

-- rule: off_budget
SELECT s.step, count(*) AS made, any_value(coalesce(
        (SELECT arg_max(json_extract(payload, '$.to.rollouts')::DOUBLE, seq) FROM commands c
            WHERE c.run = $run AND c.kind = 'set' AND c.step <= s.step AND json_extract(payload, '$.to.rollouts') IS NOT NULL),
        (SELECT json_extract(experiment, '$.budget.rollouts')::DOUBLE FROM runs WHERE run = $run))) AS budget
FROM steps s JOIN rollouts r ON r.run = s.run AND r.step = s.step
WHERE s.run = $run AND r.purpose <> 'eval' AND r.origin = 'generated' GROUP BY s.step ORDER BY s.step

-- rule: empty_texts, loops, script_change, format_collapse, leaked_answer, verifier_words, one_answer
WITH span AS (SELECT min(step) AS first, max(step) AS last, greatest(2, least(10, count(*) // 5)) AS n FROM steps WHERE run = $run),
found AS (
    SELECT r.step, r.row, left(c.text, 4000) AS text, c.answer, r.correct = 1 AS correct, r.prompt_id,
        r.step < first + n AS early, r.step > last - n AS late
    FROM rollouts r JOIN completions c USING (run, rank, step, row) CROSS JOIN span
    WHERE r.run = $run AND r.purpose = 'train' AND r.origin = 'generated' AND (r.step < first + n OR r.step > last - n)
    ORDER BY hash(r.step, r.row) LIMIT 600
)
SELECT found.*, p.answer AS gold FROM found JOIN (
    SELECT prompt_id, any_value(answer) AS answer FROM prompts WHERE run = $run AND pool = 'train' GROUP BY prompt_id
) p USING (prompt_id) ORDER BY step, row

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
