-- What did each step cost, and what would its rollouts have cost one by one? In tokens; see the macro savings.
-- $run = latest: run id
-- $since = -1: only steps after this one
SELECT step, count(*) AS groups, sum(n_kept)::BIGINT AS n_kept, sum(n_lost)::BIGINT AS n_lost,
    sum(generated)::BIGINT AS generated, sum(kept)::BIGINT AS kept, sum(pruned)::BIGINT AS pruned,
    sum(discarded)::BIGINT AS discarded, sum(probe)::BIGINT AS probe, sum(flat_equivalent)::BIGINT AS flat_equivalent,
    coalesce(sum(flat_equivalent) / nullif(sum(kept), 0), 1) AS sharing, sum(saved)::BIGINT AS saved, sum(spared) AS spared
FROM savings($run, $since) GROUP BY step ORDER BY step
