-- What is kept of the tokens of a step: for how many of its rollouts, and by which rule?
-- $run = latest: run id
-- $step: step
SELECT (SELECT arg_max(retention, attempt) FROM attempts WHERE run = $run) AS retention,
    (SELECT arg_max(share, attempt) FROM attempts WHERE run = $run) AS share,
    (SELECT count(*) > 0 FROM arrays WHERE run = $run AND scope = 'tokens') AS vocabulary,
    (SELECT arg_max(experiment, seq)::VARCHAR FROM runs WHERE run = $run) AS experiment,
    (SELECT arg_max(payload, seq)::VARCHAR FROM commands WHERE run = $run AND kind = 'swap' AND step <= $step) AS swapped,
    (SELECT count(tokens) FROM advantages WHERE run = $run AND step = $step AND term = 'final') AS credit,
    count(*) AS rollouts, count(tokens) AS tokens, count(logp) AS logp, count(entropy) AS entropy, count(role) AS role,
    count(current) AS current, count(proximal) AS proximal
FROM completions WHERE run = $run AND step = $step AND "row" >= 0 HAVING count(*) > 0
