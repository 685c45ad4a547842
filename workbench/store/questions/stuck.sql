-- Which prompts were tried often and never solved?
-- $run = latest: run id
-- $tries = 8: plain rollouts at least
-- $since = 0: only steps after this one
-- $limit = 50: at most so many, those tried most first
SELECT r.prompt_id, any_value(p.stratum) AS stratum, any_value(p.text) AS text, any_value(p.answer) AS answer,
    count(r.correct) AS tried, max(r.reward) AS best_reward, count(DISTINCT r.step) AS steps, max(r.step) AS last_step,
    sum(r.length)::BIGINT AS tokens
FROM rollouts r LEFT JOIN prompts p ON p.run = r.run AND p.pool = 'train' AND p.prompt_id = r.prompt_id
WHERE r.run = $run AND r.step > $since AND r.purpose = 'train' AND r.context = ''
    AND r.origin IN ('generated', 'carried') AND r.correct IS NOT NULL
GROUP BY r.prompt_id HAVING sum(r.correct) = 0 AND count(r.correct) >= $tries
ORDER BY tried DESC, r.prompt_id LIMIT $limit
