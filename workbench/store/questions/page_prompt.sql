-- What is this prompt?
-- $run = latest: run id
-- $prompt: prompt id
SELECT prompt_id, stratum, text, answer, prefix
FROM prompts
WHERE run = $run AND pool = 'train' AND prompt_id = $prompt
LIMIT 1
