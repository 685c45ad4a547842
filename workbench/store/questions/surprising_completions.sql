-- Which outcomes did a method believe least likely? Its belief before the step against what came, in nats.
-- $run = latest: run id
-- $method = null: method; null = the first that has beliefs
-- $since = 0: only steps after this one
-- $limit = 20: at most so many
WITH belief AS (
    SELECT prompt_id, step AS after, mean FROM beliefs
    WHERE run = $run AND method = coalesce($method::VARCHAR, (SELECT min(method) FROM beliefs WHERE run = $run))
        AND mean IS NOT NULL
), outcome AS (
    SELECT *, step - 1 AS before FROM rollouts
    WHERE run = $run AND step > $since AND purpose = 'train' AND context = '' AND origin IN ('generated', 'carried')
        AND correct IS NOT NULL
), chosen AS (
    SELECT o.*, b.mean AS believed, b.after AS believed_after,
        -ln(greatest(CASE WHEN o.correct > 0.5 THEN b.mean ELSE 1 - b.mean END, 1e-9)) AS surprise
    FROM outcome o ASOF JOIN belief b ON b.prompt_id = o.prompt_id AND o.before >= b.after
    ORDER BY surprise DESC, o.step DESC, o.rank, o.row LIMIT $limit
)
SELECT r.step, r.rank, r.rollout_id, r.prompt_id, c.text, c.answer, p.answer AS reference, r.correct, r.reward, r.believed,
    r.believed_after, r.surprise, p.text AS prompt
FROM chosen r LEFT JOIN (FROM completions WHERE run = $run AND step IN (SELECT step FROM chosen)) c USING (rank, step, row)
LEFT JOIN prompts p ON p.run = $run AND p.pool = 'train' AND p.prompt_id = r.prompt_id
ORDER BY r.surprise DESC, r.step DESC, r.rank, r.row
