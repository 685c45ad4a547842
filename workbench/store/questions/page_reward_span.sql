-- Which rewards are there: how many levels, from where to where?
-- $run = latest: run id
SELECT count(DISTINCT round(reward, 9)) AS levels, min(reward) AS low, max(reward) AS high, max(step) AS step
FROM rollouts WHERE run = $run AND purpose = 'train' AND isfinite(reward) HAVING count(*) > 0
