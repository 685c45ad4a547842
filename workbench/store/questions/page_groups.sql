-- Which groups does a step have, how did they go, and which of them forked?
-- $run = latest: run id
-- $step: step
-- $cut = 280: at most so many characters of each prompt
WITH here AS (
    SELECT * FROM nodes WHERE run = $run AND step = $step
), children AS (
    SELECT rank, parent_id, count(*) AS n FROM here WHERE parent_id IS NOT NULL GROUP BY ALL
), forked AS (
    SELECT h.rank, h.group_id, count(*) AS forks
    FROM here h JOIN children c ON c.rank = h.rank AND c.parent_id = h.node_id
    WHERE c.n > 1 AND h.kind <> 'prompt' GROUP BY ALL
)
SELECT r.rank, r.group_id, r.prompt_id, any_value(r.context) AS context, left(any_value(p.text), $cut) AS prompt,
    any_value(p.stratum) AS stratum, count(*) AS rollouts, count(*) FILTER (r.correct = 1) AS solved,
    avg(r.reward) AS reward, coalesce(stddev_pop(r.reward), 0) AS spread,
    count(*) FILTER (f.fate IN ('pruned', 'discarded')) AS cut, coalesce(any_value(k.forks), 0) AS forks
FROM rollouts r
LEFT JOIN fates f ON f.run = $run AND f.step = $step AND f.rank = r.rank AND f.row = r.row
LEFT JOIN prompts p ON p.run = $run AND p.pool = 'train' AND p.prompt_id = r.prompt_id
LEFT JOIN forked k ON k.rank = r.rank AND k.group_id = r.group_id
WHERE r.run = $run AND r.step = $step AND r.purpose <> 'eval'
GROUP BY r.rank, r.group_id, r.prompt_id
ORDER BY any_value(k.forks) IS NULL, spread <= 1e-9, r.rank, r.group_id
