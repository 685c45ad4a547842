-- What does the store compute for everybody? Views over the declared tables, made by every reader.

-- Does everything add up? Per prompt, step and purpose; sum over any of them. In rollouts and in tokens:
-- generated + carried_in = trained + dropped + pruned + discarded + carried_out + failed.
-- Replayed (used again) and foreign (generated elsewhere) rows stand outside the balance.
CREATE OR REPLACE VIEW ledger AS
WITH entries AS (
    SELECT run, step, prompt_id, purpose, origin, '' AS fate, length - inherited AS made, inherited, 0 AS tokens
    FROM rollouts
    UNION ALL
    SELECT run, step, prompt_id, purpose, 'met', fate, 0, 0, tokens
    FROM fates WHERE origin IN ('generated', 'carried')
), sums AS (
    SELECT run, step, prompt_id, purpose,
        count(*) FILTER (origin = 'generated') AS generated,
        count(*) FILTER (origin = 'carried') AS carried_in,
        count(*) FILTER (fate = 'trained') AS trained,
        count(*) FILTER (fate = 'dropped') AS dropped,
        count(*) FILTER (fate = 'pruned') AS pruned,
        count(*) FILTER (fate = 'discarded') AS discarded,
        count(*) FILTER (fate = 'carried') AS carried_out,
        count(*) FILTER (fate = 'failed') AS failed,
        count(*) FILTER (origin = 'replayed') AS replayed,
        count(*) FILTER (origin = 'foreign') AS "foreign",
        coalesce(sum(made) FILTER (origin IN ('generated', 'carried')), 0)::BIGINT AS generated_tokens,
        coalesce(sum(inherited) FILTER (origin = 'carried'), 0)::BIGINT AS carried_in_tokens,
        coalesce(sum(tokens) FILTER (fate = 'trained'), 0)::BIGINT AS trained_tokens,
        coalesce(sum(tokens) FILTER (fate = 'dropped'), 0)::BIGINT AS dropped_tokens,
        coalesce(sum(tokens) FILTER (fate = 'pruned'), 0)::BIGINT AS pruned_tokens,
        coalesce(sum(tokens) FILTER (fate = 'discarded'), 0)::BIGINT AS discarded_tokens,
        coalesce(sum(tokens) FILTER (fate = 'carried'), 0)::BIGINT AS carried_out_tokens,
        coalesce(sum(tokens) FILTER (fate = 'failed'), 0)::BIGINT AS failed_tokens
    FROM entries GROUP BY ALL
)
SELECT *, generated + carried_in = trained + dropped + pruned + discarded + carried_out + failed
    AND generated_tokens + carried_in_tokens = trained_tokens + dropped_tokens + pruned_tokens
        + discarded_tokens + carried_out_tokens + failed_tokens AS balanced
FROM sums;

-- How does each run stand? running = its writer lives; interrupted = it died without a word.
CREATE OR REPLACE VIEW run_status AS
WITH latest AS (
    SELECT run, max(attempt) AS attempt, min(started) AS started, coalesce(arg_max(ranks, attempt), 1) AS ranks
    FROM attempts GROUP BY run
), ended AS (  -- of several ranks the worst, and not before all ended, but for a failure
    SELECT run, attempt, min(status) FILTER (status = 'failed') AS failed, max(status) AS status,
        count(DISTINCT rank) AS ranks, max(message) AS message
    FROM statuses GROUP BY ALL
)
SELECT latest.run, coalesce(ended.failed, CASE WHEN ended.ranks >= latest.ranks THEN ended.status END, CASE WHEN alive.run IS NULL THEN 'interrupted' ELSE 'running' END) AS status,
    latest.attempt, (SELECT max(step) FROM steps WHERE steps.run = latest.run) AS last_step, latest.started,
    (SELECT max(time) FROM commits WHERE commits.run = latest.run) AS last_record, coalesce(ended.message, '') AS message
FROM latest LEFT JOIN ended USING (run, attempt) LEFT JOIN alive USING (run);

-- Every rollout as part of a tree: the recorded nodes, and for flat rollouts a root for the prompt and one leaf each.
-- Exact for rollouts that share nothing: what a flat node would hold is in rollouts and fates already. Not known there:
-- the tokens of the prompt (n_tokens of a root, hence token_start counts from the first generated token), and summed
-- log-probabilities (completions.logp has those of each token).
CREATE OR REPLACE VIEW trees AS
WITH flat AS (
    SELECT r.*, f.fate, f.reason, r.step || ':' || r.prompt_id || CASE r.purpose WHEN 'train' THEN '' ELSE '/' || r.purpose END
        || CASE r.context WHEN '' THEN '' ELSE '/' || r.context END AS tree_id
    FROM rollouts r ANTI JOIN (FROM nodes WHERE "row" IS NOT NULL) n USING (run, rank, step, "row")
    LEFT JOIN fates f USING (run, rank, seq, step, "row")
)
SELECT * FROM nodes
UNION ALL BY NAME
SELECT run, rank, seq, step, tree_id AS node_id, tree_id, prompt_id, min(group_id) AS group_id, 'prompt' AS kind,
    0 AS segment_depth, 0 AS fork_depth, 0 AS token_start, 'live' AS status, '' AS reason, avg(reward) AS value,
    count(reward)::INTEGER AS n_leaves
FROM flat GROUP BY run, rank, seq, step, tree_id, prompt_id
UNION ALL BY NAME
SELECT run, rank, seq, step, rollout_id AS node_id, tree_id, tree_id AS parent_id, prompt_id, group_id, "row", 'model' AS kind,
    1 AS segment_depth, (count(*) OVER (PARTITION BY run, rank, step, tree_id) > 1)::INTEGER AS fork_depth, 0 AS token_start,
    length AS n_tokens, version AS policy_version,
    CASE WHEN fate IN ('pruned', 'discarded') THEN fate ELSE 'live' END AS status,
    CASE WHEN fate IN ('pruned', 'discarded') THEN reason ELSE '' END AS reason, reward, reward AS value,
    (reward IS NOT NULL)::INTEGER AS n_leaves, fate = 'trained' AS trained, CASE fate WHEN 'trained' THEN '' ELSE reason END
        AS untrained_reason
FROM flat;
