-- Where did the rollouts of each step go, by fate and reason, and was their group all solved, none or mixed?
-- $run = latest: run id
-- $since = -1: only steps after this one
WITH groups AS (
    SELECT rank, step, group_id, avg(correct) AS solved
    FROM rollouts
    WHERE run = $run AND step > $since AND purpose <> 'eval'
    GROUP BY rank, step, group_id
)
SELECT f.step, f.fate, f.reason,
       CASE WHEN g.solved = 1 THEN 'all solved' WHEN g.solved = 0 THEN 'none solved' ELSE 'mixed' END AS outcome,
       count(*) AS n, sum(f.tokens) AS tokens
FROM fates f
JOIN rollouts r ON r.run = f.run AND r.rank = f.rank AND r.step = f.step AND r.row = f.row
JOIN groups g ON g.rank = r.rank AND g.step = r.step AND g.group_id = r.group_id
WHERE f.run = $run AND f.step > $since AND f.purpose <> 'eval'
GROUP BY all
ORDER BY f.step
