-- What did each group cost, and what would its rollouts have cost one by one? In tokens; see the macro savings.
-- $run = latest: run id
-- $since = -1: only steps after this one
FROM savings($run, $since) ORDER BY step, rank, group_id
