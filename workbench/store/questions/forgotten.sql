-- Which prompts were solved more often once than they are now?
-- $run = latest: run id
-- $tries = 4: plain rollouts of a step at least, for the step to count
-- $drop = 0.25: loss of pass rate from the best step to the last at least
-- $limit = 50: at most so many, the largest loss first
WITH pass AS (
    SELECT prompt_id, step, avg(correct) AS pass_rate
    FROM rollouts WHERE run = $run AND purpose = 'train' AND context = '' AND origin IN ('generated', 'carried') AND correct IS NOT NULL
    GROUP BY prompt_id, step HAVING count(*) >= $tries
), moved AS (
    SELECT prompt_id, max(pass_rate) AS best, arg_max(step, pass_rate) AS best_step, arg_max(pass_rate, step) AS now,
        max(step) AS last_step, count(*) AS steps
    FROM pass GROUP BY prompt_id
)
SELECT m.prompt_id, p.stratum, p.text, m.best, m.best_step, m.now, m.last_step, m.best - m.now AS lost, m.steps
FROM moved m LEFT JOIN prompts p ON p.run = $run AND p.pool = 'train' AND p.prompt_id = m.prompt_id
WHERE m.best - m.now >= $drop AND m.best_step < m.last_step
ORDER BY lost DESC, m.prompt_id LIMIT $limit
