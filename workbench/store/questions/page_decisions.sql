-- Which tests for a fork, a cut or a branch were made, from which numbers, and what was done? Newest step first, a page at a time.
-- $run = latest: run id
-- $step = null: only this step
-- $kind = null: only this kind: fork, prune, branch, ...
-- $done = false: leave out tests that changed nothing
-- $first = 0: rows to leave out before
-- $limit = 20: at most so many
WITH page AS (
    SELECT run, rank, step, position, node_id, at_token, kind, inputs, outcome, weight, count(*) OVER () AS total
    FROM decisions
    WHERE run = $run AND ($step::INTEGER IS NULL OR step = $step) AND ($kind::VARCHAR IS NULL OR kind = $kind)
        AND (NOT $done::BOOLEAN OR outcome <> 'no')
    ORDER BY step DESC, rank, position LIMIT $limit OFFSET $first
)
SELECT p.step, p.rank, p.position, coalesce(n.prompt_id, r.prompt_id) AS prompt_id, p.node_id, p.at_token, p.kind, p.inputs,
    p.outcome, p.weight, p.total
FROM page p
LEFT JOIN nodes n ON n.run = p.run AND n.rank = p.rank AND n.step = p.step AND n.node_id = p.node_id
LEFT JOIN rollouts r ON r.run = p.run AND r.rank = p.rank AND r.step = p.step AND r.rollout_id = p.node_id
ORDER BY p.step DESC, p.rank, p.position
