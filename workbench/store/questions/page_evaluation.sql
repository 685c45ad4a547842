-- What did the fixed evaluation set score at each evaluation, and what did that cost, with all further sets?
-- $run = latest: run id
-- $since = -1: only steps after this one
SELECT step, sum(correct) FILTER (context = '') AS solved, count(correct) FILTER (context = '') AS n,
    avg(reward) FILTER (context = '') AS reward, count(*) AS rollouts, sum(length - inherited)::BIGINT AS tokens
FROM rollouts
WHERE run = $run AND step > $since AND purpose = 'eval'
GROUP BY step
ORDER BY step
