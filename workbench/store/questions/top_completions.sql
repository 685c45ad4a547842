-- Which completions were rewarded most, or least?
-- $run = latest: run id
-- $lowest = false: true = those rewarded least
-- $since = 0: only steps after this one
-- $limit = 20: at most so many, the newest first where alike
WITH chosen AS (
    SELECT * FROM rollouts
    WHERE run = $run AND step > $since AND purpose = 'train' AND reward IS NOT NULL
    ORDER BY CASE WHEN $lowest THEN reward ELSE -reward END, step DESC, rank, row LIMIT $limit
)
SELECT r.step, r.rank, r.rollout_id, r.prompt_id, c.text, c.answer, p.answer AS reference, r.reward, r.correct, a.value AS advantage,
    r.length, r.finish, p.text AS prompt
FROM chosen r LEFT JOIN (FROM completions WHERE run = $run AND step IN (SELECT step FROM chosen)) c USING (rank, step, row)
LEFT JOIN (FROM advantages WHERE run = $run AND term = 'final') a USING (rank, step, row)
LEFT JOIN prompts p ON p.run = $run AND p.pool = 'train' AND p.prompt_id = r.prompt_id
ORDER BY CASE WHEN $lowest THEN r.reward ELSE -r.reward END, r.step DESC, r.rank, r.row
