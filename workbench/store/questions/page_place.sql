-- To which group of which step does a rollout belong?
-- $run = latest: run id
-- $rollout: rollout id
-- $step = 0: step it took part in; 0 = the last of them
SELECT step, rank, "row", group_id, prompt_id FROM rollouts
WHERE run = $run AND rollout_id = $rollout AND ($step = 0 OR step = $step) AND purpose <> 'eval'
ORDER BY step DESC, rank LIMIT 1
