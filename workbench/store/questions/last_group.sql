-- What did the model write in one group, what was it worth, and what did the estimator say?
-- $run = latest: run id
-- $step = null: step; null = the last
-- $prompt = null: prompt id; null = the group of the step whose rewards differ most
WITH here AS (
    SELECT coalesce($step::INTEGER, (SELECT max(step) FROM steps WHERE run = $run)) AS step
), mine AS (
    SELECT r.* FROM rollouts r, here WHERE r.run = $run AND r.step = here.step AND r.purpose = 'train'
), chosen AS (
    SELECT coalesce($prompt::VARCHAR, (
        SELECT prompt_id FROM mine GROUP BY prompt_id
        ORDER BY coalesce(stddev_pop(reward), 0) DESC, min(rank), min(row) LIMIT 1)) AS prompt_id
), parts AS (
    SELECT rank, row, map(list(part ORDER BY part), list(value ORDER BY part)) AS parts
    FROM rewards, here WHERE rewards.run = $run AND rewards.step = here.step GROUP BY rank, row
), pages AS (
    SELECT c.rank, c.row, c.text, c.answer FROM completions c
    WHERE c.run = $run AND c.step = (SELECT step FROM here) AND c.row >= 0
)
SELECT m.step, m.prompt_id, m.rank, m.row, m.rollout_id, m.group_id, g.text, g.answer, m.reward, m.correct, p.parts,
    a.value AS advantage, a.baseline, a.keep, f.fate, f.reason, m.length, m.finish, m.context, m.failure,
    q.text AS prompt, q.prefix, q.answer AS reference
FROM mine m JOIN chosen USING (prompt_id)
LEFT JOIN pages g USING (rank, row) LEFT JOIN parts p USING (rank, row)
LEFT JOIN (SELECT advantages.* FROM advantages, here WHERE run = $run AND advantages.step = here.step AND term = 'final') a USING (rank, row)
LEFT JOIN (SELECT fates.* FROM fates, here WHERE run = $run AND fates.step = here.step) f USING (rank, row)
LEFT JOIN prompts q ON q.run = $run AND q.pool = 'train' AND q.prompt_id = m.prompt_id
ORDER BY m.rank, m.row
