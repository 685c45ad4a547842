-- Where did the rollouts and tokens go, step by step?
-- $run = latest: run id
-- $since = 0: only steps after this one
SELECT step, purpose, fate, reason, count(*) AS rollouts, sum(tokens)::BIGINT AS tokens
FROM fates
WHERE run = $run AND step > $since AND origin IN ('generated', 'carried')
GROUP BY ALL ORDER BY step, purpose, fate, reason
