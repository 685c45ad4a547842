-- What does a method believe of each prompt after the last step?
-- $run = latest: run id
-- $method = null: method; null = the first that has beliefs
SELECT p.position, p.prompt_id, p.stratum, max(b.step) AS step, arg_max(b.mean, b.step) AS mean,
    arg_max(b.low, b.step) AS low, arg_max(b.high, b.step) AS high
FROM beliefs b JOIN prompts p ON p.run = b.run AND p.pool = 'train' AND p.prompt_id = b.prompt_id
WHERE b.run = $run AND b.method = coalesce($method::VARCHAR, (SELECT min(method) FROM beliefs WHERE run = $run))
GROUP BY ALL ORDER BY p.position
