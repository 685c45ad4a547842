-- How did the training batches go, step by step? (They move with selection: not the measure of learning.)
-- $run = latest: run id
-- $since = 0: only steps after this one
WITH batch AS (
    SELECT step, avg(reward) AS reward, avg(correct) AS pass_rate, avg(length) AS length, count(*) AS rollouts,
        count(DISTINCT prompt_id) AS prompts, avg((finish = 'length')::INT) AS cut_off
    FROM rollouts WHERE run = $run AND step > $since AND purpose = 'train' GROUP BY step
), signal AS (
    SELECT step, avg((fate = 'trained' AND reason <> 'zero_advantage')::INT) AS trained,
        avg((fate = 'failed')::INT) AS failed
    FROM fates WHERE run = $run AND step > $since AND purpose = 'train' GROUP BY step
), flat AS (
    SELECT step, avg(coalesce(zero, value = 0 AND (tokens IS NULL OR coalesce(list_max(tokens) = 0 AND list_min(tokens) = 0, true)))::INT)
        AS zero_advantage
    FROM advantages
    WHERE run = $run AND step > $since AND term = 'final' AND reason NOT IN ('purpose', 'null_reward')
    GROUP BY step
), optimiser AS (
    SELECT step, max(value) FILTER (name = 'loss') AS loss, max(value) FILTER (name = 'grad_norm') AS grad_norm,
        max(value) FILTER (name = 'entropy') AS entropy, max(value) FILTER (name = 'kl') AS kl
    FROM metrics WHERE run = $run AND step > $since GROUP BY step
), took AS (
    SELECT step, sum(n_tokens)::BIGINT AS n_tokens, max(seconds) AS seconds FROM steps
    WHERE run = $run AND step > $since GROUP BY step
)
SELECT step, reward, pass_rate, zero_advantage, trained, failed, entropy, length, cut_off, loss, grad_norm, kl, batch.prompts,
    rollouts, n_tokens AS tokens, seconds, n_tokens / nullif(seconds, 0) AS tokens_per_second
FROM took LEFT JOIN batch USING (step) LEFT JOIN signal USING (step) LEFT JOIN flat USING (step) LEFT JOIN optimiser USING (step)
ORDER BY step
