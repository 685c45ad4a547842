-- What did a method believe of one prompt over time?
-- $prompt: prompt id
-- $run = latest: run id
-- $method = null: only this method; null = all
SELECT step, method, mean, low, high, more
FROM beliefs
WHERE run = $run AND prompt_id = $prompt AND ($method::VARCHAR IS NULL OR method = $method)
ORDER BY method, step
