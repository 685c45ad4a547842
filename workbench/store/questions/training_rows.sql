-- Was a segment that several trained rollouts share trained once, or with every rollout through it? In tokens.
-- $run = latest: run id
-- $since = -1: only steps after this one
SELECT step, sum(n_tokens)::BIGINT AS shared, coalesce(sum(n_tokens) FILTER (trained), 0)::BIGINT AS trained,
    sum(n_tokens * trained_rows) FILTER (trained) / sum(n_tokens) FILTER (trained) AS rows_per_token,
    CASE WHEN max(trained_rows) = 1 THEN 'node' WHEN max(trained_rows) > 1 THEN 'leaf' END AS row_per
FROM nodes WHERE run = $run AND step > $since AND kind = 'model' AND trained_leaves > 1
GROUP BY step ORDER BY step
