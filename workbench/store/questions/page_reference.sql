-- What is a prompt's mean reward under each policy version, and what had it earned before? One row per step and version.
-- $run = latest: run id
-- $prompt: prompt id
-- $step: steps up to this one
SELECT step, version, count(reward) AS n, avg(reward) AS mean, coalesce(stddev_samp(reward), 0) AS std,
    count(*) FILTER (purpose = 'train') AS trained, coalesce(sum(reward) FILTER (purpose = 'train'), 0) AS earned
FROM rollouts
WHERE run = $run AND prompt_id = $prompt AND step <= $step AND context = '' AND origin IN ('generated', 'carried')
    AND purpose <> 'eval' AND isfinite(reward)
GROUP BY step, version ORDER BY step, version
