-- What was asked of one prompt, what came of it, and why was it asked?
-- $prompt: prompt id
-- $run = latest: run id
WITH asked AS (
    SELECT step, sum(n)::BIGINT AS asked, arg_max(why, round) AS why
    FROM asks WHERE run = $run AND prompt_id = $prompt AND purpose = 'train' GROUP BY step
), got AS (
    SELECT step, coalesce(sum(correct) FILTER (context = ''), 0) AS solved, count(correct) FILTER (context = '') AS tried,
        avg(reward) AS reward, avg(length) AS length, count(*) AS rollouts
    FROM rollouts
    WHERE run = $run AND prompt_id = $prompt AND purpose = 'train' AND origin IN ('generated', 'carried') GROUP BY step
)
SELECT step, coalesce(asked, 0) AS asked, coalesce(rollouts, 0) AS rollouts, coalesce(tried, 0) AS tried,
    coalesce(solved, 0) AS solved, reward, length, why
FROM asked FULL JOIN got USING (step)
ORDER BY step
