-- What did the fixed evaluation set score at each evaluation?
-- $run = latest: run id
-- $since = -1: only steps after this one
SELECT step, sum(correct) AS solved, count(correct) AS n, avg(reward) AS reward
FROM rollouts
WHERE run = $run AND step > $since AND purpose = 'eval' AND context = ''
GROUP BY step
ORDER BY step
