-- On which prompts were the most training tokens spent that taught nothing?
-- $run = latest: run id
-- $since = 0: only steps after this one
-- $limit = 50: at most so many
SELECT f.prompt_id, any_value(p.stratum) AS stratum, any_value(p.text) AS text,
    coalesce(sum(f.tokens) FILTER (f.fate <> 'trained' OR f.reason = 'zero_advantage'), 0)::BIGINT AS wasted_tokens,
    sum(f.tokens)::BIGINT AS tokens, wasted_tokens / nullif(sum(f.tokens), 0) AS share,
    count(*) AS rollouts, max(f.step) AS last_step
FROM fates f LEFT JOIN prompts p ON p.run = f.run AND p.pool = 'train' AND p.prompt_id = f.prompt_id
WHERE f.run = $run AND f.step > $since AND f.purpose = 'train' AND f.origin IN ('generated', 'carried') AND f.fate <> 'carried'
GROUP BY f.prompt_id ORDER BY wasted_tokens DESC, f.prompt_id LIMIT $limit
