-- Which completions contain a text?
-- $text: text to look for, case does not matter
-- $run = latest: run id
-- $limit = 50: at most so many, newest first
SELECT c.step, c.row, c.rollout_id, c.text, c.answer FROM completions c
WHERE c.run = $run AND contains(lower(c.text), lower($text))
ORDER BY c.step DESC, c.row LIMIT $limit
