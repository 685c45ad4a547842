-- What did a method believe of all prompts over all steps? Fill forward: a row holds until the prompt's next one.
-- $run = latest: run id
-- $method = null: method; null = the first that has beliefs
-- $since = -1: only steps after this one
SELECT p.position, b.prompt_id, b.step, b.mean
FROM beliefs b JOIN prompts p ON p.run = b.run AND p.pool = 'train' AND p.prompt_id = b.prompt_id
WHERE b.run = $run AND b.step > $since
    AND b.method = coalesce($method::VARCHAR, (SELECT min(method) FROM beliefs WHERE run = $run))
ORDER BY b.step, p.position
