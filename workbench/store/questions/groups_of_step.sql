-- How did each group of a step go?
-- $run = latest: run id
-- $step = null: step; null = the last
WITH here AS (
    SELECT coalesce($step::INTEGER, (SELECT max(step) FROM steps WHERE run = $run)) AS step
)
SELECT r.step, r.rank, r.group_id, r.prompt_id, any_value(p.stratum) AS stratum, any_value(p.text) AS prompt, r.context,
    count(*) AS rollouts, coalesce(sum(r.correct), 0) AS solved, avg(r.reward) AS reward,
    stddev_pop(r.reward) AS spread, avg((f.reason = 'zero_advantage')::INT) AS zero_advantage, avg(r.length) AS length
FROM rollouts r JOIN here USING (step) JOIN fates f USING (run, rank, seq, step, row)
LEFT JOIN prompts p ON p.run = r.run AND p.pool = 'train' AND p.prompt_id = r.prompt_id
WHERE r.run = $run AND r.purpose = 'train'
GROUP BY r.step, r.rank, r.group_id, r.prompt_id, r.context ORDER BY r.rank, r.group_id
