-- On which evaluation sets was the run scored, at which steps, with how many samples of a prompt?
-- $run = latest: run id
SELECT "set", count(DISTINCT prompt_id) AS prompts, min(n) AS fewest_samples, max(n) AS most_samples,
    list_sort(list(DISTINCT step)) AS steps
FROM (
    SELECT context AS "set", step, prompt_id, count(correct) AS n FROM rollouts
    WHERE run = $run AND purpose = 'eval' GROUP BY ALL
) GROUP BY "set" ORDER BY "set"
