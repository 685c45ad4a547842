-- When a method believed p, how often was the prompt solved? Beliefs from before the step against its outcomes.
-- $run = latest: run id
-- $method = null: method; null = the first that has beliefs
-- $bins = 10: number of bins
WITH belief AS (
    SELECT prompt_id, step, mean FROM beliefs
    WHERE run = $run AND method = coalesce($method::VARCHAR, (SELECT min(method) FROM beliefs WHERE run = $run))
), outcome AS (
    SELECT prompt_id, step, step - 1 AS before, sum(correct) AS solved, count(correct) AS tried
    FROM rollouts WHERE run = $run AND purpose = 'train' AND context = '' AND origin IN ('generated', 'carried') AND correct IS NOT NULL
    GROUP BY prompt_id, step
), pair AS (
    SELECT o.solved, o.tried, b.mean
    FROM outcome o ASOF JOIN belief b ON b.prompt_id = o.prompt_id AND o.before >= b.step
    WHERE b.mean IS NOT NULL
)
SELECT least(floor(mean * $bins), $bins - 1)::INTEGER AS bin, sum(mean * tried) / sum(tried) AS believed,
    sum(solved) / sum(tried) AS observed, sum(tried)::BIGINT AS tries, count(*) AS groups,
    sum(tried * power(mean - solved / tried, 2)) / sum(tried) AS squared_error
FROM pair GROUP BY bin ORDER BY bin
