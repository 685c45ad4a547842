-- What did each prompt cost, and what became of it? Rollouts and tokens, each counted once.
-- $run = latest: run id
SELECT prompt_id, purpose, sum(generated)::BIGINT AS generated, sum(carried_in)::BIGINT AS carried_in,
    sum(trained)::BIGINT AS trained, sum(dropped)::BIGINT AS dropped, sum(pruned)::BIGINT AS pruned,
    sum(discarded)::BIGINT AS discarded, sum(carried_out)::BIGINT AS carried_out, sum(failed)::BIGINT AS failed,
    sum(replayed)::BIGINT AS replayed, sum("foreign")::BIGINT AS "foreign",
    sum(generated_tokens)::BIGINT AS generated_tokens, sum(trained_tokens)::BIGINT AS trained_tokens,
    bool_and(balanced) AS balanced
FROM ledger WHERE run = $run
GROUP BY ALL ORDER BY generated_tokens DESC, prompt_id
