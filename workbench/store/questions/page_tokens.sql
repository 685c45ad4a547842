-- What did one rollout say, token by token, and what is known of each of them?
-- $run = latest: run id
-- $step: step
-- $row: row of the rollout in the step
-- $rank = 0: rank that recorded it; 0 where one process trains
-- $most = 2000: at most so many tokens
-- $cut = 280: at most so many characters of the text
WITH vocabulary AS (
    SELECT any_value(text) FILTER (name = 'piece') AS piece, any_value(whole) FILTER (name = 'special') AS special
    FROM arrays WHERE run = $run AND scope = 'tokens'
), spoken AS (
    SELECT * FROM completions WHERE run = $run AND step = $step AND rank = $rank AND "row" = $row
), credited AS (
    SELECT * FROM advantages
    WHERE run = $run AND step = $step AND rank = $rank AND "row" = $row AND term = 'final' AND node_id IS NULL
)
SELECT s.rollout_id, len(s.tokens) AS n, length(s.text) AS characters, left(s.text, $cut) AS text, s.tokens[1:$most] AS tokens,
    list_select(v.piece, list_transform(s.tokens[1:$most], lambda t: t + 1)) AS pieces, v.special,
    s.logp[1:$most] AS logp, s.entropy[1:$most] AS entropy, s.role[1:$most] AS role, s.current[1:$most] AS current,
    s.proximal[1:$most] AS proximal, a.tokens[1:$most] AS advantage, a.value
FROM spoken s CROSS JOIN vocabulary v LEFT JOIN credited a ON true
