-- What did each step cost, whatever it was for: rollouts, tokens and seconds, probes and refills included?
-- $run = latest: run id
-- $since = -1: only steps after this one
SELECT step, sum(n_rollouts)::BIGINT AS rollouts, sum(n_tokens)::BIGINT AS tokens, max(seconds) AS seconds
FROM steps WHERE run = $run AND step > $since GROUP BY step ORDER BY step
