-- What share of its plain rollouts did each prompt solve in each step in which it was asked?
-- $run = latest: run id
-- $since = -1: only steps after this one
SELECT p.position, r.step, avg(r.correct) AS share, count(*) AS n
FROM rollouts r
JOIN prompts p ON p.run = r.run AND p.pool = 'train' AND p.prompt_id = r.prompt_id
WHERE r.run = $run AND r.step > $since AND r.purpose = 'train' AND r.context = ''
    AND r.origin IN ('generated', 'carried') AND r.correct IS NOT NULL
GROUP BY p.position, r.step
ORDER BY r.step
