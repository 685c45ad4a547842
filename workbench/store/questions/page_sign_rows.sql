-- What did each scored rollout of a plain prompt earn, and which advantage did it get? kept: the advantage entered the loss.
-- $run = latest: run id
-- $since = 0: only steps after this one
SELECT r.step, p.position, r.reward, a.value AS advantage, a.estimator, coalesce(a.keep AND a.value IS NOT NULL, false) AS kept,
    count(*) FILTER (a.keep AND a.value IS NOT NULL) OVER (PARTITION BY r.step, r.rank, r.group_id) AS size
FROM rollouts r
LEFT JOIN advantages a ON a.run = $run AND a.step > $since AND a.rank = r.rank AND a.step = r.step AND a."row" = r."row"
    AND a.term = 'final' AND a.node_id IS NULL
JOIN prompts p ON p.run = $run AND p.pool = 'train' AND p.prompt_id = r.prompt_id
WHERE r.run = $run AND r.step > $since AND r.purpose = 'train' AND r.context = '' AND isfinite(r.reward)
QUALIFY r.origin IN ('generated', 'carried')
ORDER BY r.step, r.rank, r."row"
