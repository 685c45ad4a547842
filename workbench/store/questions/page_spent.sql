-- Where did the rollouts and tokens of each step go, evaluation left out: by purpose, fate and reason, and was their group all solved, none or mixed?
-- $run = latest: run id
-- $since = -1: only steps after this one
WITH groups AS (
    SELECT rank, step, purpose, group_id, avg(correct) AS solved
    FROM rollouts WHERE run = $run AND step > $since AND purpose <> 'eval' GROUP BY ALL
), mine AS (
    SELECT f.rank, f.step, f.purpose, f.fate, f.reason, f.origin NOT IN ('generated', 'carried') AS used_again, f.tokens,
        r.group_id
    FROM fates f JOIN rollouts r USING (run, rank, seq, step, "row")
    WHERE f.run = $run AND f.step > $since AND f.purpose <> 'eval'
)
SELECT step, purpose, fate, reason, used_again,
    CASE solved WHEN 1 THEN 'all solved' WHEN 0 THEN 'none solved' ELSE 'mixed' END AS outcome,
    count(*) AS rollouts, sum(tokens)::BIGINT AS tokens
FROM mine LEFT JOIN groups USING (rank, step, purpose, group_id)
GROUP BY ALL ORDER BY step, purpose, fate, reason, outcome
