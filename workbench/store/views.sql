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
    length AS n_tokens, version AS policy_version, temperature,
    CASE WHEN fate IN ('pruned', 'discarded') THEN fate ELSE 'live' END AS status,
    CASE WHEN fate IN ('pruned', 'discarded') THEN reason ELSE '' END AS reason, reward, reward AS value,
    (reward IS NOT NULL)::INTEGER AS n_leaves, fate = 'trained' AS trained, CASE fate WHEN 'trained' THEN '' ELSE reason END
        AS untrained_reason
FROM flat;

-- What did each group of the steps after `since` cost, against what its rollouts would have cost one by one? In tokens,
-- eval left out: generated = kept + pruned + discarded + probe, as in the ledger; each token counts once.
-- kept: on the path of a rollout that was not given up, a prefix shared with one that was included. pruned, discarded:
-- on the paths of given-up rollouts only. probe: of probe nodes, and of rollouts asked for anything but training.
-- flat_equivalent: what the kept rollouts would cost if each were generated alone, without tokens of earlier steps.
-- sharing = flat_equivalent / kept; saved = flat_equivalent - generated, so what was given up and probed counts against it.
-- spared: what given-up rollouts would have cost besides, had they become as long as the kept ones of their group are
-- on average: an estimate, and no part of saved. Hinted rollouts are groups of their own, by context:
-- what was made behind a hint costs as much as any; the hint itself was read and not made, also where it is trained.
CREATE OR REPLACE MACRO savings(of_run, since) AS TABLE
WITH RECURSIVE tree AS (
    SELECT rank, step, node_id, parent_id, group_id, "row", kind, status, n_tokens, duplicate_of
    FROM nodes WHERE run = of_run AND step > since
), mine AS (
    SELECT r.rank, r.step, r."row", r.group_id, r.prompt_id, r.purpose, r.context, r.length,
        r.length - r.inherited AS made, CASE r.origin WHEN 'carried' THEN r.inherited ELSE 0 END AS earlier,
        CASE WHEN r.purpose <> 'train' THEN 'probe' WHEN t.status <> 'live' THEN t.status
             WHEN f.fate IN ('pruned', 'discarded') THEN f.fate ELSE 'kept' END AS what
    FROM rollouts r JOIN fates f USING (run, rank, seq, step, "row")
    LEFT JOIN tree t ON t.rank = r.rank AND t.step = r.step AND t."row" = r."row"
    WHERE r.run = of_run AND r.step > since AND r.purpose <> 'eval' AND r.origin IN ('generated', 'carried')
), passed(rank, step, node_id, parent_id) AS (  -- nodes on the path of a kept rollout
    SELECT t.rank, t.step, t.node_id, t.parent_id
    FROM tree t JOIN mine m USING (rank, step, "row") WHERE m.what = 'kept' AND t.kind <> 'probe'
    UNION
    SELECT t.rank, t.step, t.node_id, t.parent_id
    FROM passed p JOIN tree t ON t.rank = p.rank AND t.step = p.step AND t.node_id = p.parent_id
), above(rank, step, "row", parent_id, probes) AS (  -- probe tokens inside the paths of rows, hence in their lengths
    SELECT rank, step, "row", parent_id, CASE kind WHEN 'probe' THEN n_tokens ELSE 0 END FROM tree WHERE "row" >= 0
    UNION ALL
    SELECT a.rank, a.step, a."row", t.parent_id, a.probes + CASE t.kind WHEN 'probe' THEN t.n_tokens ELSE 0 END
    FROM above a JOIN tree t ON t.rank = a.rank AND t.step = a.step AND t.node_id = a.parent_id
), probed AS (
    SELECT rank, step, "row", max(probes) AS probes FROM above GROUP BY ALL
), copies AS (
    SELECT DISTINCT rank, step, "row" FROM tree WHERE duplicate_of IS NOT NULL AND "row" >= 0
), lost AS (  -- what recorded trees say of tokens that no kept rollout passed
    SELECT rank, step, group_id,
        coalesce(sum(n_tokens) FILTER (kind = 'model' AND status <> 'discarded'), 0) AS pruned,
        coalesce(sum(n_tokens) FILTER (kind = 'model' AND status = 'discarded'), 0) AS discarded,
        coalesce(sum(n_tokens) FILTER (kind = 'probe'), 0) AS probe
    FROM tree ANTI JOIN passed USING (rank, step, node_id)
    WHERE duplicate_of IS NULL GROUP BY ALL
), rows AS (
    SELECT m.*, t."row" IS NOT NULL AS in_tree, length - earlier - coalesce(probes, 0) AS alone, c."row" IS NOT NULL AS copy
    FROM mine m LEFT JOIN (SELECT DISTINCT rank, step, "row" FROM tree) t USING (rank, step, "row")
    LEFT JOIN probed USING (rank, step, "row") LEFT JOIN copies c USING (rank, step, "row")
), sums AS (
    SELECT rank, step, group_id, any_value(prompt_id) AS prompt_id, any_value(purpose) AS purpose,
        any_value(context) AS context, count(*) FILTER (what = 'kept' AND NOT copy) AS n_kept,
        count(*) FILTER (what IN ('pruned', 'discarded')) AS n_lost, sum(made) AS generated,
        coalesce(sum(alone) FILTER (what = 'kept' AND NOT copy), 0) AS flat_equivalent,
        coalesce(sum(alone) FILTER (what IN ('pruned', 'discarded')), 0) AS lost_alone,
        coalesce(sum(made) FILTER (what = 'pruned' AND NOT in_tree), 0) - coalesce(sum(earlier) FILTER (what = 'pruned' AND in_tree), 0) AS pruned,
        coalesce(sum(made) FILTER (what = 'discarded' AND NOT in_tree), 0) - coalesce(sum(earlier) FILTER (what = 'discarded' AND in_tree), 0) AS discarded,
        coalesce(sum(made) FILTER (what = 'probe' AND NOT in_tree), 0) AS probe
    FROM rows GROUP BY rank, step, group_id
), parts AS (
    SELECT s.* REPLACE (s.pruned + coalesce(l.pruned, 0) AS pruned, s.discarded + coalesce(l.discarded, 0) AS discarded,
        s.probe + coalesce(l.probe, 0) AS probe)
    FROM sums s LEFT JOIN lost l USING (rank, step, group_id)
)
SELECT rank, step, group_id, prompt_id, purpose, context, n_kept, n_lost, generated::BIGINT AS generated,
    (generated - pruned - discarded - probe)::BIGINT AS kept, pruned::BIGINT AS pruned, discarded::BIGINT AS discarded,
    probe::BIGINT AS probe, flat_equivalent::BIGINT AS flat_equivalent, coalesce(flat_equivalent / nullif(kept, 0), 1) AS sharing,
    (flat_equivalent - generated)::BIGINT AS saved,
    CASE WHEN n_kept > 0 THEN greatest(n_lost * flat_equivalent / n_kept - lost_alone, 0) ELSE 0 END AS spared
FROM parts;
