-- Which share of the training tokens taught nothing, and for what reason?
-- $run = latest: run id
-- $since = 0: only steps after this one
WITH groups AS (
    SELECT step, rank, group_id, min(correct) AS worst, max(correct) AS best
    FROM rollouts WHERE run = $run AND step > $since AND purpose = 'train' GROUP BY ALL
), spent AS (
    SELECT f.tokens,
        CASE WHEN f.fate = 'trained' AND f.reason <> 'zero_advantage' THEN 'useful'
             WHEN f.fate = 'trained' AND g.worst = 1 THEN 'zero_advantage: all solved'
             WHEN f.fate = 'trained' AND g.best = 0 THEN 'zero_advantage: none solved'
             WHEN f.fate = 'trained' THEN 'zero_advantage: alike'
             ELSE f.fate || coalesce(': ' || nullif(f.reason, ''), '') END AS what
    FROM fates f JOIN rollouts r USING (run, rank, seq, step, row) JOIN groups g USING (step, rank, group_id)
    WHERE f.run = $run AND f.step > $since AND f.purpose = 'train' AND f.origin IN ('generated', 'carried')
        AND f.fate <> 'carried' -- counted whole in the step that ends it
)
SELECT what, count(*) AS rollouts, sum(tokens)::BIGINT AS tokens, sum(tokens) / nullif(sum(sum(tokens)) OVER (), 0) AS share
FROM spent GROUP BY what ORDER BY tokens DESC, what
