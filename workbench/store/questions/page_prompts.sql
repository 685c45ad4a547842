-- Which prompts does a run train on, in the order of its pool?
-- $run = latest: run id
SELECT position, prompt_id, stratum, left(text, 160) AS text
FROM prompts
WHERE run = $run AND pool = 'train'
ORDER BY position
