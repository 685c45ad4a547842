-- How did the rollouts of a group grow? Segments with their place, cost, value and fate; flat rollouts are a root with leaves.
-- $run = latest: run id
-- $step: step
-- $group: group of the step, counted in its rank
-- $rank = 0: rank that recorded it; 0 where one process trains
SELECT t.node_id, t.parent_id, t.kind, t.token_start, coalesce(t.n_tokens, 0) AS n_tokens, t.status, t.reason, t.reward,
    t.value, t.n_leaves, t.choice, t.entropy_at_fork, t.entropy_mean, t.duplicate_of,
    t.trained_rows, t.untrained_reason, t."row", r.rollout_id, r.correct,
    r.finish, a.value AS advantage, f.fate, f.reason AS fate_reason
FROM trees t
LEFT JOIN rollouts r ON r.run = $run AND r.step = $step AND r.rank = $rank AND r."row" = t."row"
LEFT JOIN advantages a ON a.run = $run AND a.step = $step AND a.rank = $rank AND a."row" = t."row" AND a.term = 'final'
LEFT JOIN fates f ON f.run = $run AND f.step = $step AND f.rank = $rank AND f."row" = t."row"
WHERE t.run = $run AND t.step = $step AND t.rank = $rank AND t.group_id = $group
    AND t.tree_id NOT IN (  -- groups of an evaluation are counted for themselves
        SELECT tree_id FROM trees WHERE run = $run AND step = $step AND rank = $rank AND "row" < 0
    )
ORDER BY t.tree_id, t.segment_depth, t.node_id
