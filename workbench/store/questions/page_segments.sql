-- What do the segments of a tree say, and what advantage fell on their tokens? One row per segment and rollout through it.
-- $run = latest: run id
-- $step: step
-- $rank = 0: rank that recorded it; 0 where one process trains
-- $node = []: segments, one entry per row of the answer
-- $row = []: a rollout that passes each, by its row in the step
-- $first = []: first generated token of each, from 0
-- $last = []: token after its last
-- $cut = []: at most so many tokens of each are spelled out
WITH asked AS (
    SELECT unnest($node::VARCHAR[]) AS node_id, unnest($row::INTEGER[]) AS "row", unnest($first::INTEGER[]) AS "first",
        unnest($last::INTEGER[]) AS "last", unnest($cut::INTEGER[]) AS cut
), known AS (
    SELECT any_value(text) FILTER (name = 'piece') AS piece FROM arrays WHERE run = $run AND scope = 'tokens'
), spoken AS (  -- lead: tokens of a hint in front of the generated ones
    SELECT "row", tokens, text, coalesce(len(list_filter(role, lambda r: r = 1)), 0) AS lead FROM completions
    WHERE run = $run AND step = $step AND rank = $rank AND "row" IN (SELECT "row" FROM asked)
), placed AS (
    SELECT q.node_id, q."row", q.cut, s.tokens, s.text, q."first" + coalesce(s.lead, 0) AS "first",
        q."last" + coalesce(s.lead, 0) AS "last"
    FROM asked q LEFT JOIN spoken s USING ("row")
)
SELECT q.node_id, q."row", q.tokens IS NOT NULL AS kept, left(q.text, 4 * q.cut) AS text,
    q.tokens["first" + 1:least("last", "first" + q.cut)] AS tokens,
    list_select(k.piece, list_transform(q.tokens["first" + 1:least("last", "first" + q.cut)], lambda t: t + 1)) AS pieces,
    list_aggregate(a.tokens["first" + 1:"last"], 'avg') AS credit
FROM placed q CROSS JOIN known k
LEFT JOIN (
    SELECT "row", tokens FROM advantages
    WHERE run = $run AND step = $step AND rank = $rank AND term = 'final' AND node_id IS NULL
) a USING ("row")
