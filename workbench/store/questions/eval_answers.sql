-- Which answers did each evaluation prompt get, how often, and were they right? What majority@k is computed from.
-- $run = latest: run id
-- $set = "": name of an evaluation set; "" is the first, null all
SELECT r.context AS "set", r.step, r.prompt_id, p.stratum, c.answer, count(r.correct) AS tried,
    coalesce(sum(r.correct), 0)::BIGINT AS solved
FROM rollouts r JOIN prompts p ON p.run = r.run AND p.pool = 'eval' AND p.prompt_id = r.prompt_id
JOIN completions c ON c.run = r.run AND c.rank = r.rank AND c.seq = r.seq AND c.step = r.step AND c."row" = r."row"
WHERE r.run = $run AND r.purpose = 'eval' AND r.correct IS NOT NULL AND ($set::VARCHAR IS NULL OR r.context = $set)
GROUP BY ALL ORDER BY r.context, r.step, p.stratum, r.prompt_id, c.answer NULLS LAST
