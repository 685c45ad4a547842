-- How often was each evaluation prompt tried and solved? What pass@k is computed from.
-- $run = latest: run id
-- $set = "": name of an evaluation set; "" is the first, null all
SELECT r.context AS "set", r.step, r.prompt_id, p.stratum, count(r.correct) AS tried, coalesce(sum(r.correct), 0)::BIGINT AS solved
FROM rollouts r JOIN prompts p ON p.run = r.run AND p.pool = 'eval' AND p.prompt_id = r.prompt_id
WHERE r.run = $run AND r.purpose = 'eval' AND ($set::VARCHAR IS NULL OR r.context = $set)
GROUP BY ALL ORDER BY r.context, r.step, p.stratum, r.prompt_id
