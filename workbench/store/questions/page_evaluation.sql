-- What did the fixed evaluation set score at each evaluation, and what did that cost?
-- $run = latest: run id
-- $since = -1: only steps after this one
SELECT step, sum(correct) AS solved, count(correct) AS n, avg(reward) AS reward, count(*) AS rollouts,
    sum(length - inherited)::BIGINT AS tokens
FROM rollouts
WHERE run = $run AND step > $since AND purpose = 'eval'
GROUP BY step
ORDER BY step
