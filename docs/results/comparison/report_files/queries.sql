-- compare_runs
-- store.ask("compare_runs", runs=['2026-11-28-replay-f885', '2026-11-28-replay-a6f9', '2026-11-28-replay-q8h4', '2026-11-28-replay-tpfc', '2026-11-28-replay-vxew', '2026-11-28-replay-3hrq', '2026-11-28-replay-rke2', '2026-11-28-replay-hcb9', '2026-11-28-replay-mgeh', '2026-11-28-replay-enfw', '2026-11-28-replay-dda3', '2026-11-28-replay-mnzs'])
-- How do runs compare: what had each learned after so many rollouts, tokens and seconds?
WITH step AS (
    SELECT run, step, sum(n_rollouts)::BIGINT AS rollouts, sum(n_tokens)::BIGINT AS tokens, max(seconds) AS seconds
    FROM steps WHERE ['2026-11-28-replay-f885', '2026-11-28-replay-a6f9', '2026-11-28-replay-q8h4', '2026-11-28-replay-tpfc', '2026-11-28-replay-vxew', '2026-11-28-replay-3hrq', '2026-11-28-replay-rke2', '2026-11-28-replay-hcb9', '2026-11-28-replay-mgeh', '2026-11-28-replay-enfw', '2026-11-28-replay-dda3', '2026-11-28-replay-mnzs']::VARCHAR[] IS NULL OR list_contains(['2026-11-28-replay-f885', '2026-11-28-replay-a6f9', '2026-11-28-replay-q8h4', '2026-11-28-replay-tpfc', '2026-11-28-replay-vxew', '2026-11-28-replay-3hrq', '2026-11-28-replay-rke2', '2026-11-28-replay-hcb9', '2026-11-28-replay-mgeh', '2026-11-28-replay-enfw', '2026-11-28-replay-dda3', '2026-11-28-replay-mnzs']::VARCHAR[], run) GROUP BY run, step
), spent AS (
    SELECT run, step, sum(rollouts) OVER w AS rollouts, sum(tokens) OVER w AS tokens, sum(seconds) OVER w AS seconds
    FROM step WINDOW w AS (PARTITION BY run ORDER BY step)
), learned AS (
    SELECT run, step, avg(correct) AS pass_rate, avg(reward) AS reward, count(DISTINCT prompt_id) AS prompts,
        sqrt(var_samp(correct) / count(correct)) AS standard_error
    FROM rollouts
    WHERE purpose = 'eval' AND context = '' AND (['2026-11-28-replay-f885', '2026-11-28-replay-a6f9', '2026-11-28-replay-q8h4', '2026-11-28-replay-tpfc', '2026-11-28-replay-vxew', '2026-11-28-replay-3hrq', '2026-11-28-replay-rke2', '2026-11-28-replay-hcb9', '2026-11-28-replay-mgeh', '2026-11-28-replay-enfw', '2026-11-28-replay-dda3', '2026-11-28-replay-mnzs']::VARCHAR[] IS NULL OR list_contains(['2026-11-28-replay-f885', '2026-11-28-replay-a6f9', '2026-11-28-replay-q8h4', '2026-11-28-replay-tpfc', '2026-11-28-replay-vxew', '2026-11-28-replay-3hrq', '2026-11-28-replay-rke2', '2026-11-28-replay-hcb9', '2026-11-28-replay-mgeh', '2026-11-28-replay-enfw', '2026-11-28-replay-dda3', '2026-11-28-replay-mnzs']::VARCHAR[], run)) GROUP BY run, step
), who AS (
    SELECT run, arg_max(pipeline, attempt) AS pipeline FROM attempts WHERE rank = 0 GROUP BY run
)
SELECT l.run, l.step, l.pass_rate, l.standard_error, l.reward, l.prompts, coalesce(s.rollouts, 0)::BIGINT AS rollouts,
    coalesce(s.tokens, 0)::BIGINT AS tokens, coalesce(s.seconds, 0) AS seconds, r.name, r.seed, w.pipeline
FROM learned l ASOF LEFT JOIN spent s ON s.run = l.run AND l.step >= s.step
LEFT JOIN runs r ON r.run = l.run LEFT JOIN who w ON w.run = l.run
ORDER BY r.started, l.run, l.step;

-- runs
-- store.ask("runs")
-- Which runs are there, and how does each stand?
SELECT s.run, s.status, s.last_step, s.started, s.last_record, s.attempt, r.name, r.seed, r.n_prompts, r.n_evaluation,
    r.world ->> 'model' AS model, a.pipeline, r.parent, r.parent_step, a.code_version, s.message
FROM run_status s JOIN runs r USING (run) JOIN (
        SELECT run, attempt, arg_min(pipeline, rank) AS pipeline, min(code_version) AS code_version FROM attempts GROUP BY ALL
    ) a USING (run, attempt)
ORDER BY s.started DESC, s.run DESC;

-- reward_by_step
-- store.ask("reward_by_step", run='2026-11-28-replay-f885')
-- store.ask("reward_by_step", run='2026-11-28-replay-a6f9')
-- How did the training batches go, step by step? (They move with selection: not the measure of learning.)
WITH batch AS (
    SELECT step, avg(reward) AS reward, avg(correct) AS pass_rate, avg(length) AS length, count(*) AS rollouts,
        count(DISTINCT prompt_id) AS prompts, avg((finish = 'length')::INT) AS cut_off
    FROM rollouts WHERE run = '2026-11-28-replay-f885' AND step > 0 AND purpose = 'train' GROUP BY step
), signal AS (
    SELECT step, avg((fate = 'trained' AND reason <> 'zero_advantage')::INT) AS trained,
        avg((fate = 'failed')::INT) AS failed
    FROM fates WHERE run = '2026-11-28-replay-f885' AND step > 0 AND purpose = 'train' GROUP BY step
), flat AS (
    SELECT step, avg(coalesce(zero, value = 0 AND (tokens IS NULL OR coalesce(list_max(tokens) = 0 AND list_min(tokens) = 0, true)))::INT)
        AS zero_advantage
    FROM advantages
    WHERE run = '2026-11-28-replay-f885' AND step > 0 AND term = 'final' AND reason NOT IN ('purpose', 'null_reward')
    GROUP BY step
), optimiser AS (
    SELECT step, max(value) FILTER (name = 'loss') AS loss, max(value) FILTER (name = 'grad_norm') AS grad_norm,
        max(value) FILTER (name = 'entropy') AS entropy, max(value) FILTER (name = 'kl') AS kl
    FROM metrics WHERE run = '2026-11-28-replay-f885' AND step > 0 GROUP BY step
), took AS (
    SELECT step, sum(n_tokens)::BIGINT AS n_tokens, max(seconds) AS seconds FROM steps
    WHERE run = '2026-11-28-replay-f885' AND step > 0 GROUP BY step
)
SELECT step, reward, pass_rate, zero_advantage, trained, failed, entropy, length, cut_off, loss, grad_norm, kl, batch.prompts,
    rollouts, n_tokens AS tokens, seconds, n_tokens / nullif(seconds, 0) AS tokens_per_second
FROM took LEFT JOIN batch USING (step) LEFT JOIN signal USING (step) LEFT JOIN flat USING (step) LEFT JOIN optimiser USING (step)
ORDER BY step;

-- page_evaluation
-- store.ask("page_evaluation", run='2026-11-28-replay-f885')
-- store.ask("page_evaluation", run='2026-11-28-replay-a6f9')
-- What did the fixed evaluation set score at each evaluation, and what did that cost, with all further sets?
SELECT step, sum(correct) FILTER (context = '') AS solved, count(correct) FILTER (context = '') AS n,
    avg(reward) FILTER (context = '') AS reward, count(*) AS rollouts, sum(length - inherited)::BIGINT AS tokens
FROM rollouts
WHERE run = '2026-11-28-replay-f885' AND step > -1 AND purpose = 'eval'
GROUP BY step
ORDER BY step;

-- page_run
-- store.ask("page_run", run='2026-11-28-replay-a6f9')
-- What is this run: its experiment, its world, and who acted at each verb when it was opened last?
SELECT r.run, r.name, r.experiment, r.world, r.n_prompts, r.n_evaluation, r.started,
       (SELECT a.pipeline FROM attempts a WHERE a.run = r.run ORDER BY a.attempt DESC LIMIT 1) AS who,
       (SELECT c.payload FROM commands c WHERE c.run = r.run AND c.kind = 'swap' ORDER BY c.step DESC, c.seq DESC LIMIT 1)
           AS swapped,
       (SELECT max(s.step) FROM steps s WHERE s.run = r.run) AS step
FROM runs r
WHERE r.run = '2026-11-28-replay-a6f9';

-- eval_tries
-- store.ask("eval_tries", run='2026-11-28-replay-a6f9')
-- How often was each evaluation prompt tried and solved? What pass@k is computed from.
SELECT r.context AS "set", r.step, r.prompt_id, p.stratum, count(r.correct) AS tried, coalesce(sum(r.correct), 0)::BIGINT AS solved
FROM rollouts r JOIN prompts p ON p.run = r.run AND p.pool = 'eval' AND p.prompt_id = r.prompt_id
WHERE r.run = '2026-11-28-replay-a6f9' AND r.purpose = 'eval' AND (''::VARCHAR IS NULL OR r.context = '')
GROUP BY ALL ORDER BY r.context, r.step, p.stratum, r.prompt_id;

-- wasted
-- store.ask("wasted", run='2026-11-28-replay-a6f9')
-- Which share of the training tokens taught nothing, and for what reason?
WITH groups AS (
    SELECT step, rank, group_id, min(correct) AS worst, max(correct) AS best
    FROM rollouts WHERE run = '2026-11-28-replay-a6f9' AND step > 0 AND purpose = 'train' GROUP BY ALL
), spent AS (
    SELECT f.tokens,
        CASE WHEN f.fate = 'trained' AND f.reason <> 'zero_advantage' THEN 'useful'
             WHEN f.fate = 'trained' AND g.worst = 1 THEN 'zero_advantage: all solved'
             WHEN f.fate = 'trained' AND g.best = 0 THEN 'zero_advantage: none solved'
             WHEN f.fate = 'trained' THEN 'zero_advantage: alike'
             WHEN f.fate = 'carried' THEN 'carried'
             ELSE f.fate || coalesce(': ' || nullif(f.reason, ''), '') END AS what
    FROM fates f JOIN rollouts r USING (run, rank, seq, step, row) JOIN groups g USING (step, rank, group_id)
    WHERE f.run = '2026-11-28-replay-a6f9' AND f.step > 0 AND f.purpose = 'train' AND f.origin IN ('generated', 'carried')
)
SELECT what, count(*) AS rollouts, sum(tokens)::BIGINT AS tokens, sum(tokens) / nullif(sum(sum(tokens)) OVER (), 0) AS share
FROM spent GROUP BY what ORDER BY tokens DESC, what;

-- prompts_by_difficulty
-- store.ask("prompts_by_difficulty", run='2026-11-28-replay-a6f9')
-- Which prompts are hard, which are easy, and how often was each tried?
SELECT p.prompt_id, p.stratum, p.text, p.answer, coalesce(sum(r.correct), 0) AS solved, count(r.correct) AS tried,
    avg(r.correct) AS pass_rate, avg(r.reward) AS reward, var_pop(r.reward) AS reward_variance,
    coalesce(sum(r.length), 0)::BIGINT AS tokens, max(r.step) AS last_step
FROM prompts p LEFT JOIN rollouts r
    ON r.run = p.run AND r.prompt_id = p.prompt_id AND r.purpose = 'train' AND r.context = '' AND r.step > 0
WHERE p.run = '2026-11-28-replay-a6f9' AND p.pool = 'train'
GROUP BY p.prompt_id, p.stratum, p.text, p.answer, p.position ORDER BY pass_rate NULLS LAST, p.position;

-- sign_excess
-- store.ask("sign_excess", run='2026-11-28-replay-a6f9')
-- Do advantages point the wrong way more often than the size of the groups explains? By step and estimator.
-- The true sign is that of reward - b*: b* is the mean of the prompt's other groups at most 10 steps away, 8 rollouts at
-- least; within two standard errors nothing is said. hard: the recorded advantage has the other sign. explained: the
-- reward less the mean of its own group would have had it, for the same rollouts and the same b*.
WITH own AS (
    SELECT prompt_id, step, rank, group_id, count(reward) AS n, sum(reward) AS total, sum(reward * reward) AS squares
    FROM rollouts
    WHERE run = '2026-11-28-replay-a6f9' AND purpose = 'train' AND context = '' AND isfinite(reward) AND origin IN ('generated', 'carried')
    GROUP BY ALL
), around AS (
    SELECT step, rank, group_id, total / n AS own_mean, sum(n) OVER near - n AS others,
        sum(total) OVER near - total AS others_total, sum(squares) OVER near - squares AS others_squares
    FROM own WINDOW near AS (PARTITION BY prompt_id ORDER BY step RANGE BETWEEN 10 PRECEDING AND 10 FOLLOWING)
), reference AS (
    SELECT step, rank, group_id, own_mean, others_total / others AS mean,
        sqrt(greatest(others_squares / others - power(others_total / others, 2), 0) / (others - 1)) AS error
    FROM around WHERE others >= 8
), compared AS (
    SELECT r.step, a.estimator, a.value AS advantage, r.reward - f.mean AS away, r.reward - f.own_mean AS plain
    FROM advantages a JOIN rollouts r USING (run, rank, seq, step, "row") JOIN reference f USING (step, rank, group_id)
    WHERE a.run = '2026-11-28-replay-a6f9' AND a.term = 'final' AND a.node_id IS NULL AND a.keep AND r.purpose = 'train' AND r.context = ''
        AND isfinite(r.reward) AND isfinite(a.value) AND abs(r.reward - f.mean) > greatest(2 * f.error, 1e-8)
)
SELECT step, estimator, count(*) AS rollouts,
    count(*) FILTER (abs(advantage) > 1e-8 AND sign(advantage) <> sign(away)) AS hard,
    count(*) FILTER (abs(plain) > 1e-8 AND sign(plain) <> sign(away)) AS explained,
    count(*) FILTER (abs(advantage) <= 1e-8) AS vanish
FROM compared GROUP BY step, estimator ORDER BY step, estimator;

-- eval_answers
-- store.ask("eval_answers", run='2026-11-28-replay-a6f9')
-- Which answers did each evaluation prompt get, how often, and were they right? What majority@k is computed from.
SELECT r.context AS "set", r.step, r.prompt_id, p.stratum, c.answer, count(r.correct) AS tried,
    coalesce(sum(r.correct), 0)::BIGINT AS solved
FROM rollouts r JOIN prompts p ON p.run = r.run AND p.pool = 'eval' AND p.prompt_id = r.prompt_id
JOIN completions c ON c.run = r.run AND c.rank = r.rank AND c.seq = r.seq AND c.step = r.step AND c."row" = r."row"
WHERE r.run = '2026-11-28-replay-a6f9' AND r.purpose = 'eval' AND r.correct IS NOT NULL AND (''::VARCHAR IS NULL OR r.context = '')
GROUP BY ALL ORDER BY r.context, r.step, p.stratum, r.prompt_id, c.answer NULLS LAST;

-- page_budget
-- store.ask("page_budget", run='2026-11-28-replay-a6f9')
-- Where did the rollouts of each step go, by fate and reason, and was their group all solved, none or mixed?
WITH groups AS (
    SELECT rank, step, group_id, avg(correct) AS solved
    FROM rollouts
    WHERE run = '2026-11-28-replay-a6f9' AND step > -1 AND purpose <> 'eval'
    GROUP BY rank, step, group_id
)
SELECT f.step, f.fate, f.reason,
       CASE WHEN g.solved = 1 THEN 'all solved' WHEN g.solved = 0 THEN 'none solved' ELSE 'mixed' END AS outcome,
       count(*) AS n, sum(f.tokens) AS tokens
FROM fates f
JOIN rollouts r ON r.run = f.run AND r.rank = f.rank AND r.step = f.step AND r.row = f.row
JOIN groups g ON g.rank = r.rank AND g.step = r.step AND g.group_id = r.group_id
WHERE f.run = '2026-11-28-replay-a6f9' AND f.step > -1 AND f.purpose <> 'eval'
GROUP BY all
ORDER BY f.step;

-- ledger_by_step
-- store.ask("ledger_by_step", run='2026-11-28-replay-a6f9')
-- Does every step add up?
SELECT step, purpose, sum(generated)::BIGINT AS generated, sum(carried_in)::BIGINT AS carried_in,
    sum(trained)::BIGINT AS trained, sum(dropped)::BIGINT AS dropped, sum(pruned)::BIGINT AS pruned,
    sum(discarded)::BIGINT AS discarded, sum(carried_out)::BIGINT AS carried_out, sum(failed)::BIGINT AS failed,
    sum(generated_tokens)::BIGINT AS generated_tokens, sum(trained_tokens)::BIGINT AS trained_tokens,
    bool_and(balanced) AS balanced
FROM ledger WHERE run = '2026-11-28-replay-a6f9'
GROUP BY ALL ORDER BY step, purpose;

-- most_wasted
-- store.ask("most_wasted", run='2026-11-28-replay-a6f9', limit=10)
-- On which prompts were the most training tokens spent that taught nothing?
SELECT f.prompt_id, any_value(p.stratum) AS stratum, any_value(p.text) AS text,
    coalesce(sum(f.tokens) FILTER (f.fate <> 'trained' OR f.reason = 'zero_advantage'), 0)::BIGINT AS wasted_tokens,
    sum(f.tokens)::BIGINT AS tokens, wasted_tokens / nullif(sum(f.tokens), 0) AS share,
    count(*) AS rollouts, max(f.step) AS last_step
FROM fates f LEFT JOIN prompts p ON p.run = f.run AND p.pool = 'train' AND p.prompt_id = f.prompt_id
WHERE f.run = '2026-11-28-replay-a6f9' AND f.step > 0 AND f.purpose = 'train' AND f.origin IN ('generated', 'carried') AND f.fate <> 'carried'
GROUP BY f.prompt_id ORDER BY wasted_tokens DESC, f.prompt_id LIMIT 10;

-- timings_by_step
-- store.ask("timings_by_step", run='2026-11-28-replay-a6f9')
-- Where did the time go?
SELECT step, phase, max(seconds) AS seconds FROM timings WHERE run = '2026-11-28-replay-a6f9' AND step > 0
GROUP BY step, phase ORDER BY step, phase;

-- belief_map
-- store.ask("belief_map", run='2026-11-28-replay-a6f9', method='mopps')
-- What did a method believe of all prompts over all steps? Fill forward: a row holds until the prompt's next one.
SELECT p.position, b.prompt_id, b.step, b.mean
FROM beliefs b JOIN prompts p ON p.run = b.run AND p.pool = 'train' AND p.prompt_id = b.prompt_id
WHERE b.run = '2026-11-28-replay-a6f9' AND b.step > -1
    AND b.method = coalesce('mopps'::VARCHAR, (SELECT min(method) FROM beliefs WHERE run = '2026-11-28-replay-a6f9'))
ORDER BY b.step, p.position;

-- page_observed
-- store.ask("page_observed", run='2026-11-28-replay-a6f9')
-- What share of its plain rollouts did each prompt solve in each step in which it was asked?
SELECT p.position, r.step, avg(r.correct) AS share, count(*) AS n
FROM rollouts r
JOIN prompts p ON p.run = r.run AND p.pool = 'train' AND p.prompt_id = r.prompt_id
WHERE r.run = '2026-11-28-replay-a6f9' AND r.step > -1 AND r.purpose = 'train' AND r.context = '' AND r.correct IS NOT NULL
GROUP BY p.position, r.step
ORDER BY r.step;

-- calibration
-- store.ask("calibration", run='2026-11-28-replay-a6f9', method='mopps')
-- When a method believed p, how often was the prompt solved? Beliefs from before the step against its outcomes.
WITH belief AS (
    SELECT prompt_id, step, mean FROM beliefs
    WHERE run = '2026-11-28-replay-a6f9' AND method = coalesce('mopps'::VARCHAR, (SELECT min(method) FROM beliefs WHERE run = '2026-11-28-replay-a6f9'))
), outcome AS (
    SELECT prompt_id, step, step - 1 AS before, sum(correct) AS solved, count(correct) AS tried
    FROM rollouts WHERE run = '2026-11-28-replay-a6f9' AND purpose = 'train' AND context = '' AND correct IS NOT NULL
    GROUP BY prompt_id, step
), pair AS (
    SELECT o.solved, o.tried, b.mean
    FROM outcome o ASOF JOIN belief b ON b.prompt_id = o.prompt_id AND o.before >= b.step
    WHERE b.mean IS NOT NULL
)
SELECT least(floor(mean * 10), 10 - 1)::INTEGER AS bin, sum(mean * tried) / sum(tried) AS believed,
    sum(solved) / sum(tried) AS observed, sum(tried)::BIGINT AS tries, count(*) AS groups,
    sum(tried * power(mean - solved / tried, 2)) / sum(tried) AS squared_error
FROM pair GROUP BY bin ORDER BY bin;

-- stuck
-- store.ask("stuck", run='2026-11-28-replay-a6f9', limit=10)
-- Which prompts were tried often and never solved?
SELECT r.prompt_id, any_value(p.stratum) AS stratum, any_value(p.text) AS text, any_value(p.answer) AS answer,
    count(r.correct) AS tried, max(r.reward) AS best_reward, count(DISTINCT r.step) AS steps, max(r.step) AS last_step,
    sum(r.length)::BIGINT AS tokens
FROM rollouts r LEFT JOIN prompts p ON p.run = r.run AND p.pool = 'train' AND p.prompt_id = r.prompt_id
WHERE r.run = '2026-11-28-replay-a6f9' AND r.step > 0 AND r.purpose = 'train' AND r.context = '' AND r.correct IS NOT NULL
GROUP BY r.prompt_id HAVING sum(r.correct) = 0 AND count(r.correct) >= 8
ORDER BY tried DESC, r.prompt_id LIMIT 10;

-- most_varied
-- store.ask("most_varied", run='2026-11-28-replay-a6f9', limit=10)
-- On which prompts do the rewards of a group differ most?
WITH groups AS (
    SELECT prompt_id, step, count(reward) AS n, var_pop(reward) AS variance, avg(correct) AS pass_rate
    FROM rollouts WHERE run = '2026-11-28-replay-a6f9' AND step > 0 AND purpose = 'train'
    GROUP BY rank, step, group_id, prompt_id HAVING count(reward) > 1
)
SELECT g.prompt_id, any_value(p.stratum) AS stratum, any_value(p.text) AS text, sum(variance * n) / sum(n) AS reward_variance,
    sum(pass_rate * n) / sum(n) AS pass_rate, count(*) AS groups, sum(n)::BIGINT AS rollouts, max(step) AS last_step
FROM groups g LEFT JOIN prompts p ON p.run = '2026-11-28-replay-a6f9' AND p.pool = 'train' AND p.prompt_id = g.prompt_id
GROUP BY g.prompt_id ORDER BY reward_variance DESC, g.prompt_id LIMIT 10;

-- sign_flips
-- store.ask("sign_flips", run='2026-11-28-replay-a6f9')
-- Which advantages push the wrong way, by step and estimator? Signs against a pooled reference of the same policy version.
WITH reference AS (  -- b* = E[reward] of a prompt under one policy version; what it was made from is never mixed
    SELECT prompt_id, version, avg(reward) AS mean, count(reward) AS n,
        if(max(reward) > min(reward), stddev_samp(reward), 0) / sqrt(count(reward)) AS se
    FROM rollouts
    WHERE run = '2026-11-28-replay-a6f9' AND context = '' AND origin IN ('generated', 'carried') AND purpose <> 'eval' AND isfinite(reward)
    GROUP BY prompt_id, version
), compared AS (
    SELECT r.step, a.estimator, CASE WHEN f.n >= 64 THEN 'pool' ELSE 'small pool' END AS reference_kind, f.n,
        a.value AS advantage, r.reward - f.mean AS away, 2 * f.se AS margin
    FROM advantages a JOIN rollouts r USING (run, rank, seq, step, row)
    LEFT JOIN reference f ON f.prompt_id = r.prompt_id AND f.version = r.version
    WHERE a.run = '2026-11-28-replay-a6f9' AND a.step > 0 AND a.term = 'final' AND a.node_id IS NULL
        AND r.purpose = 'train' AND r.context = '' AND a.value IS NOT NULL AND f.n > 0
), labelled AS (
    SELECT *, CASE
        WHEN away IS NULL OR NOT isfinite(away) OR (margin > 0 AND abs(away) <= margin) THEN 'ambiguous'
        WHEN abs(away) <= 1e-08 THEN if(abs(advantage) <= 1e-08, 'both_zero', 'spurious')
        WHEN abs(advantage) <= 1e-08 THEN 'vanish'
        WHEN sign(advantage) = sign(away) THEN 'ok' ELSE 'hard' END AS label
    FROM compared
)
SELECT step, estimator, reference_kind, count(*) AS rollouts,
    count(*) FILTER (label = 'ok') AS ok, count(*) FILTER (label = 'hard') AS hard,
    count(*) FILTER (label = 'vanish') AS vanish, count(*) FILTER (label = 'spurious') AS spurious,
    count(*) FILTER (label = 'both_zero') AS both_zero, count(*) FILTER (label = 'ambiguous') AS ambiguous,
    hard / nullif(ok + hard + vanish, 0) AS hard_rate, vanish / nullif(ok + hard + vanish, 0) AS vanish_rate,
    spurious / nullif(spurious + both_zero, 0) AS spurious_rate,
    coalesce(sum(abs(away)) FILTER (label = 'hard'), 0)
        / nullif(sum(abs(away)) FILTER (label IN ('ok', 'hard', 'vanish')), 0) AS hard_reward_mass,
    coalesce(sum(abs(advantage)) FILTER (label = 'hard'), 0)
        / nullif(sum(abs(advantage)) FILTER (label IN ('ok', 'hard', 'spurious')), 0) AS hard_gradient_mass,
    min(n) AS smallest_pool, max(n) AS largest_pool
FROM labelled GROUP BY step, estimator, reference_kind ORDER BY step, estimator, reference_kind;

-- page_groups
-- store.ask("page_groups", run='2026-11-28-replay-a6f9', step=40)
-- Which groups does a step have, how did they go, and which of them forked?
WITH here AS (
    SELECT * FROM nodes WHERE run = '2026-11-28-replay-a6f9' AND step = 40
), children AS (
    SELECT rank, parent_id, count(*) AS n FROM here WHERE parent_id IS NOT NULL GROUP BY ALL
), forked AS (
    SELECT h.rank, h.group_id, count(*) AS forks
    FROM here h JOIN children c ON c.rank = h.rank AND c.parent_id = h.node_id
    WHERE c.n > 1 AND h.kind <> 'prompt' GROUP BY ALL
)
SELECT r.rank, r.group_id, r.prompt_id, any_value(r.context) AS context, left(any_value(p.text), 280) AS prompt,
    any_value(p.stratum) AS stratum, count(*) AS rollouts, count(*) FILTER (r.correct = 1) AS solved,
    avg(r.reward) AS reward, coalesce(stddev_pop(r.reward), 0) AS spread,
    count(*) FILTER (f.fate IN ('pruned', 'discarded')) AS cut, coalesce(any_value(k.forks), 0) AS forks
FROM rollouts r
LEFT JOIN fates f ON f.run = '2026-11-28-replay-a6f9' AND f.step = 40 AND f.rank = r.rank AND f.row = r.row
LEFT JOIN prompts p ON p.run = '2026-11-28-replay-a6f9' AND p.pool = 'train' AND p.prompt_id = r.prompt_id
LEFT JOIN forked k ON k.rank = r.rank AND k.group_id = r.group_id
WHERE r.run = '2026-11-28-replay-a6f9' AND r.step = 40 AND r.purpose <> 'eval'
GROUP BY r.rank, r.group_id, r.prompt_id
ORDER BY any_value(k.forks) IS NULL, spread <= 1e-9, r.rank, r.group_id;

-- page_tree
-- store.ask("page_tree", run='2026-11-28-replay-a6f9', step=40, group=0, rank=0)
-- store.ask("page_tree", run='2026-11-28-replay-a6f9', step=40, group=1, rank=0)
-- store.ask("page_tree", run='2026-11-28-replay-a6f9', step=40, group=3, rank=0)
-- How did the rollouts of a group grow? Segments with their place, cost, value and fate; flat rollouts are a root with leaves.
SELECT t.node_id, t.parent_id, t.kind, t.token_start, coalesce(t.n_tokens, 0) AS n_tokens, t.status, t.reason, t.reward,
    t.value, t.n_leaves, t.choice, t.entropy_at_fork, t.entropy_mean, t.duplicate_of, t."row", r.rollout_id, r.correct,
    r.finish, a.value AS advantage, f.fate, f.reason AS fate_reason
FROM trees t
LEFT JOIN rollouts r ON r.run = '2026-11-28-replay-a6f9' AND r.step = 40 AND r.rank = 0 AND r."row" = t."row"
LEFT JOIN advantages a ON a.run = '2026-11-28-replay-a6f9' AND a.step = 40 AND a.rank = 0 AND a."row" = t."row" AND a.term = 'final'
LEFT JOIN fates f ON f.run = '2026-11-28-replay-a6f9' AND f.step = 40 AND f.rank = 0 AND f."row" = t."row"
WHERE t.run = '2026-11-28-replay-a6f9' AND t.step = 40 AND t.rank = 0 AND t.group_id = 0
    AND t.tree_id NOT IN (  -- groups of an evaluation are counted for themselves
        SELECT tree_id FROM trees WHERE run = '2026-11-28-replay-a6f9' AND step = 40 AND rank = 0 AND "row" < 0
    )
ORDER BY t.tree_id, t.segment_depth, t.node_id;

-- attempts_of_run
-- store.ask("attempts_of_run", run='2026-11-28-replay-a6f9')
-- When, from which step, by which version and on what machine was the run opened?
SELECT rank, attempt, from_step, started, code_version, machine FROM attempts WHERE run = '2026-11-28-replay-a6f9' ORDER BY attempt, rank;
