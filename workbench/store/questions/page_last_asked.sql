-- When was a prompt asked last, and in which group?
-- $run = latest: run id
-- $prompt: prompt id
SELECT step, rank, group_id
FROM rollouts
WHERE run = $run AND prompt_id = $prompt AND purpose <> 'eval'
ORDER BY step DESC, rank, group_id
LIMIT 1
