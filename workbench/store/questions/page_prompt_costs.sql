-- What did each prompt cost, for which purpose, and what became of it? A carried rollout counts where it ends.
-- $run = latest: run id
-- $since = -1: only steps after this one
SELECT p.position, f.purpose, f.fate, f.reason = 'zero_advantage' AS zero, count(*) AS rollouts, sum(f.tokens)::BIGINT AS tokens
FROM fates f JOIN prompts p ON p.run = f.run AND p.pool = 'train' AND p.prompt_id = f.prompt_id
WHERE f.run = $run AND f.step > $since AND f.purpose <> 'eval' AND f.origin IN ('generated', 'carried') AND f.fate <> 'carried'
GROUP BY ALL ORDER BY p.position
