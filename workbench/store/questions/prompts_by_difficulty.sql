-- Which prompts are hard, which are easy, and how often was each tried?
-- $run = latest: run id
-- $since = 0: only steps after this one
SELECT p.prompt_id, p.stratum, p.text, p.answer, coalesce(sum(r.correct), 0) AS solved, count(r.correct) AS tried,
    avg(r.correct) AS pass_rate, avg(r.reward) AS reward, var_pop(r.reward) AS reward_variance,
    coalesce(sum(r.length), 0)::BIGINT AS tokens, max(r.step) AS last_step
FROM prompts p LEFT JOIN rollouts r
    ON r.run = p.run AND r.prompt_id = p.prompt_id AND r.purpose = 'train' AND r.context = '' AND r.origin IN ('generated', 'carried')
        AND r.step > $since
WHERE p.run = $run AND p.pool = 'train'
GROUP BY p.prompt_id, p.stratum, p.text, p.answer, p.position ORDER BY pass_rate NULLS LAST, p.position
