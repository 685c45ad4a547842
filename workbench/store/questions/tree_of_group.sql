-- What does the tree of a group look like? Parents before children; flat rollouts are a root with one leaf each.
-- $group: group of the step, counted in its rank
-- $run = latest: run id
-- $step = null: step; null = the last
-- $rank = 0: rank that recorded it; 0 where one process trains
-- $cut = 280: at most so many characters of each text
WITH here AS (
    SELECT coalesce($step::INTEGER, (SELECT max(step) FROM steps WHERE run = $run)) AS step
)
SELECT t.step, t.tree_id, t.node_id, t.parent_id, t.kind, t.segment_depth, t.fork_depth, t.token_start, t.n_tokens,
    t.status, t.reason, t.reward, t.value, t.n_leaves, t.choice, t.entropy_at_fork, t.behaviour_logprob, t.trained,
    t.untrained_reason, t.trained_rows, t.trained_leaves, a.value AS advantage, left(c.text, $cut) AS text
FROM trees t JOIN here USING (step)
LEFT JOIN (FROM completions WHERE run = $run AND step = (SELECT step FROM here)) c USING (rank, "row")
LEFT JOIN (FROM advantages WHERE run = $run AND term = 'final') a USING (rank, step, "row")
WHERE t.run = $run AND t.rank = $rank AND t.group_id = $group AND t.tree_id NOT IN (
    SELECT tree_id FROM trees WHERE run = $run AND rank = $rank AND step = (SELECT step FROM here) AND "row" < 0
)
ORDER BY t.rank, t.tree_id, t.segment_depth, t.node_id
