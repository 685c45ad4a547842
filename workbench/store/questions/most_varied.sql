-- On which prompts do the rewards of a group differ most?
-- $run = latest: run id
-- $since = 0: only steps after this one
-- $limit = 50: at most so many
WITH groups AS (
    SELECT prompt_id, step, count(reward) AS n, var_pop(reward) AS variance, avg(correct) AS pass_rate
    FROM rollouts WHERE run = $run AND step > $since AND purpose = 'train'
    GROUP BY rank, step, group_id, prompt_id HAVING count(reward) > 1
)
SELECT g.prompt_id, any_value(p.stratum) AS stratum, any_value(p.text) AS text, sum(variance * n) / sum(n) AS reward_variance,
    sum(pass_rate * n) / sum(n) AS pass_rate, count(*) AS groups, sum(n)::BIGINT AS rollouts, max(step) AS last_step
FROM groups g LEFT JOIN prompts p ON p.run = $run AND p.pool = 'train' AND p.prompt_id = g.prompt_id
GROUP BY g.prompt_id ORDER BY reward_variance DESC, g.prompt_id LIMIT $limit
