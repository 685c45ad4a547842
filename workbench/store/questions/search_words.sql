-- Which completions contain all of these words, those with the most of them first?
-- $words: words to look for, with spaces between; case does not matter
-- $run = latest: run id
-- $since = -1: only steps after this one
-- $limit = 50: at most so many
WITH asked AS (
    SELECT list_filter(string_split(lower($words), ' '), lambda w: w <> '') AS words
), page AS (
    SELECT c.rank, c.step, c.row, c.rollout_id, c.text, c.answer, lower(c.text) AS low, asked.words
    FROM completions c, asked WHERE c.run = $run AND c.step > $since
), hit AS (
    SELECT *, list_sum(list_transform(words, lambda w: (length(low) - length(replace(low, w, ''))) / length(w)))::INTEGER AS hits
    FROM page
    WHERE len(words) > 0 AND list_bool_and(list_transform(words, lambda w: contains(low, w)))
)
SELECT step, row, rollout_id, hits, substr(text, greatest(1, instr(low, words[1]) - 40), 200) AS around, text, answer
FROM hit ORDER BY hits DESC, step DESC, rank, row LIMIT $limit
