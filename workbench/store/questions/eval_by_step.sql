-- How much was learned? The fixed evaluation set, never trained on and never seen by a method.
-- $run = latest: run id
SELECT step, avg(correct) AS pass_rate, avg(reward) AS reward, avg(length) AS length, count(*) AS rollouts,
    count(DISTINCT prompt_id) AS prompts, sqrt(var_samp(correct) / count(correct)) AS standard_error
FROM rollouts WHERE run = $run AND purpose = 'eval' AND context = ''
GROUP BY step ORDER BY step
