-- On which prompts was a run evaluated?
-- $run = latest: run id
SELECT prompt_id FROM prompts WHERE run = $run AND pool = 'eval' ORDER BY position
