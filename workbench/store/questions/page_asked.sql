-- What was asked of each step, what was generated for it, and how much of that taught something? Training rollouts; other = probes and the like.
-- $run = latest: run id
-- $since = -1: only steps after this one
WITH asked AS (
    SELECT step, coalesce(sum(n) FILTER (purpose = 'train'), 0)::BIGINT AS asked, max(round) + 1 AS rounds,
        coalesce(sum(n) FILTER (purpose <> 'train'), 0)::BIGINT AS other, count(DISTINCT prompt_id) AS prompts
    FROM asks WHERE run = $run AND step > $since AND purpose <> 'eval' GROUP BY step
), got AS (
    SELECT step, count(*) FILTER (origin = 'generated') AS spent, count(*) FILTER (origin = 'carried') AS carried_in,
        count(*) FILTER (fate = 'trained' AND reason <> 'zero_advantage') AS useful,
        coalesce(sum(tokens) FILTER (origin = 'generated'), 0)::BIGINT AS tokens,
        coalesce(sum(tokens) FILTER (fate = 'trained' AND reason <> 'zero_advantage'), 0)::BIGINT AS useful_tokens
    FROM fates WHERE run = $run AND step > $since AND purpose = 'train' AND origin IN ('generated', 'carried') GROUP BY step
)
SELECT step, coalesce(asked, 0) AS asked, coalesce(other, 0) AS other, coalesce(prompts, 0) AS prompts,
    coalesce(rounds, 0) AS rounds, coalesce(spent, 0) AS spent, coalesce(carried_in, 0) AS carried_in,
    coalesce(useful, 0) AS useful, coalesce(tokens, 0) AS tokens, coalesce(useful_tokens, 0) AS useful_tokens
FROM asked FULL JOIN got USING (step) ORDER BY step
