-- Which completions contain all of these words, the best matches first? A scan: no index to build, none to go stale.
-- $text: words, and "phrases in double quotes"; case does not matter, and parts of words are found too
-- $run = latest: run id
-- $since = -1: only steps after this one
-- $limit = 50: at most so many, by BM25 (k1 = 1.2, b = 0.75), the newest first where alike
WITH asked AS (
    SELECT list_distinct(list_filter(list_transform(regexp_extract_all(lower($text), '"[^"]*"|[^\s"]+'),
        lambda t: trim(t, '" ')), lambda t: t <> '')) AS terms
), page AS (
    SELECT c.rank, c.step, c.row, length(c.text) AS n, lower(c.text) AS low, terms
    FROM completions c, asked WHERE c.run = $run AND c.step > $since AND len(terms) > 0
), seen AS MATERIALIZED (
    SELECT rank, step, row, n, list_transform(terms, lambda t: (length(low) - length(replace(low, t, ''))) // length(t)) AS times
    FROM page WHERE list_bool_or(list_transform(terms, lambda t: contains(low, t)))
), rarity AS (
    SELECT list(ln(1 + (pages - df + 0.5) / (df + 0.5)) ORDER BY i) AS idf, any_value(usual) AS usual FROM (
        SELECT i, count(*) FILTER (times[i] > 0) AS df
        FROM seen, (SELECT unnest(range(1, len(terms) + 1)) AS i FROM asked) GROUP BY i
    ), (SELECT count(*) AS pages, avg(length(text)) AS usual FROM completions WHERE run = $run AND step > $since)
), chosen AS (
    SELECT rank, step, row, list_sum(times)::INTEGER AS hits, list_sum(list_transform(list_zip(times, idf),
        lambda x: x[2] * x[1] * 2.2 / (x[1] + 1.2 * (0.25 + 0.75 * n / usual)))) AS score
    FROM seen, rarity WHERE NOT list_contains(list_transform(times, lambda k: k > 0), false)
    ORDER BY score DESC, step DESC, rank, row LIMIT $limit
)
SELECT h.step, h.rank, h.row, r.rollout_id, r.prompt_id, r.purpose, h.hits, h.score,
    substr(c.text, greatest(1, instr(lower(c.text), terms[1]) - 60), 200) AS around, c.text, c.answer, r.reward, r.correct
FROM chosen h CROSS JOIN asked
JOIN (FROM completions WHERE run = $run AND step IN (SELECT step FROM chosen)) c USING (rank, step, row)
JOIN (FROM rollouts WHERE run = $run AND step IN (SELECT step FROM chosen)) r USING (rank, step, row)
ORDER BY h.score DESC, h.step DESC, h.rank, h.row
