-- What was asked, why, and what came back? Newest step first, a page at a time; total counts all pages.
-- $run = latest: run id
-- $step = null: only this step
-- $prompt = null: only this prompt
-- $first = 0: asks to leave out before
-- $limit = 20: at most so many
WITH page AS (
    SELECT run, rank, step, ask, round, prompt_id, n, purpose, context, start_kind, max_tokens, why, count(*) OVER () AS total
    FROM asks
    WHERE run = $run AND ($step::INTEGER IS NULL OR step = $step) AND ($prompt::VARCHAR IS NULL OR prompt_id = $prompt)
    ORDER BY step DESC, rank, ask LIMIT $limit OFFSET $first
), back AS (
    SELECT rank, step, ask, count(*) AS rollouts, sum(correct) AS solved, count(correct) AS tried, avg(reward) AS reward,
        sum(length - inherited)::BIGINT AS tokens
    FROM rollouts
    WHERE run = $run AND step IN (SELECT step FROM page) AND purpose <> 'eval' GROUP BY ALL
)
SELECT p.step, p.rank, p.ask, p.round, p.prompt_id, q.stratum, left(q.text, 160) AS text, p.n, p.purpose, p.context, p.start_kind,
    p.max_tokens, p.why, coalesce(b.rollouts, 0) AS rollouts, b.solved, coalesce(b.tried, 0) AS tried, b.reward,
    coalesce(b.tokens, 0) AS tokens, p.total
FROM page p LEFT JOIN back b USING (rank, step, ask)
LEFT JOIN prompts q ON q.run = p.run AND q.pool = 'train' AND q.prompt_id = p.prompt_id
ORDER BY p.step DESC, p.rank, p.ask
