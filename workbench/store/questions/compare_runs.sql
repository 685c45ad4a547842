-- How do runs compare: what had each learned after so many rollouts, tokens and seconds?
-- $runs = null: run ids; null = all
WITH step AS (
    SELECT run, step, sum(n_rollouts)::BIGINT AS rollouts, sum(n_tokens)::BIGINT AS tokens, max(seconds) AS seconds
    FROM steps WHERE $runs::VARCHAR[] IS NULL OR list_contains($runs::VARCHAR[], run) GROUP BY run, step
), spent AS (
    SELECT run, step, sum(rollouts) OVER w AS rollouts, sum(tokens) OVER w AS tokens, sum(seconds) OVER w AS seconds
    FROM step WINDOW w AS (PARTITION BY run ORDER BY step)
), learned AS (
    SELECT run, step, avg(correct) AS pass_rate, avg(reward) AS reward, count(DISTINCT prompt_id) AS prompts,
        sqrt(var_samp(correct) / count(correct)) AS standard_error
    FROM rollouts
    WHERE purpose = 'eval' AND context = '' AND ($runs::VARCHAR[] IS NULL OR list_contains($runs::VARCHAR[], run)) GROUP BY run, step
), who AS (
    SELECT run, arg_max(pipeline, attempt) AS pipeline FROM attempts WHERE rank = 0 GROUP BY run
)
SELECT l.run, l.step, l.pass_rate, l.standard_error, l.reward, l.prompts, coalesce(s.rollouts, 0)::BIGINT AS rollouts,
    coalesce(s.tokens, 0)::BIGINT AS tokens, coalesce(s.seconds, 0) AS seconds, r.name, r.seed, w.pipeline
FROM learned l ASOF LEFT JOIN spent s ON s.run = l.run AND l.step >= s.step
LEFT JOIN runs r ON r.run = l.run LEFT JOIN who w ON w.run = l.run
ORDER BY r.started, l.run, l.step
