-- What did the fixed evaluation set score at each evaluation (n: answers to as many prompts, asked once each, tell as much as those that were tried), and what did that cost, with all further sets?
-- $run = latest: run id
-- $since = -1: only steps after this one
WITH answers AS (
    SELECT step, prompt_id, context, correct, reward, length - inherited AS generated
    FROM rollouts
    WHERE run = $run AND step > $since AND purpose = 'eval'
), prompts AS (  -- answers to one prompt are alike: of the set's prompts, not of its answers, an interval must be
    SELECT step, sum(correct) AS solved, count(correct) AS tried, sum(correct) / count(correct) AS share
    FROM answers
    WHERE context = '' AND correct IS NOT NULL
    GROUP BY step, prompt_id
), spread AS (
    SELECT step, sum(solved) / sum(tried) AS share, sum(tried) AS tried, count(*) AS prompts, var_pop(share) / count(*) AS variance
    FROM prompts
    GROUP BY step
), scores AS (
    SELECT step, share, tried,
        round(CASE WHEN share IN (0, 1) THEN prompts ELSE least(tried, share * (1 - share) / greatest(variance, 1e-12)) END, 6) AS n
    FROM spread
)
SELECT step, any_value(s.share * s.n) AS solved, coalesce(any_value(s.n), 0) AS n, coalesce(any_value(s.tried), 0)::BIGINT AS tried,
    avg(reward) FILTER (context = '') AS reward, count(*) AS rollouts, sum(generated)::BIGINT AS tokens
FROM answers LEFT JOIN scores AS s USING (step)
GROUP BY step
ORDER BY step
