-- Which commits does a reader not show? {commits} and {attempts} are the sources of those tables.
-- Those replaced by a later attempt that went back, of whichever rank; and, where several ranks write a run, steps that
-- not all of them have recorded yet, with what was recorded after such a step.
WITH replaced AS (
    SELECT DISTINCT c.run, c.rank, c.seq
    FROM ({commits}) c JOIN ({attempts}) a ON c.run = a.run AND c.attempt < a.attempt AND c.step >= a.from_step
    WHERE c.kind IN ('step', 'evaluation', 'beliefs')
), ranked AS (
    SELECT c.run, c.rank, c.seq, c.kind, c.step, a.ranks
    FROM ({commits}) c JOIN (SELECT run, rank, attempt, ranks FROM ({attempts})) a USING (run, rank, attempt)
    ANTI JOIN replaced USING (run, rank, seq)
    WHERE a.ranks > 1 AND c.kind IN ('step', 'evaluation', 'beliefs')
), whole AS (
    SELECT run, step FROM ranked WHERE kind = 'step' GROUP BY run, step HAVING count(DISTINCT rank) >= max(ranks)
)
SELECT run, rank, seq FROM replaced
UNION ALL
SELECT run, rank, seq FROM ranked ANTI JOIN whole USING (run, step) WHERE kind = 'step'
UNION ALL
SELECT r.run, r.rank, r.seq FROM ranked r
WHERE kind <> 'step' AND r.step > coalesce((SELECT max(w.step) FROM whole w WHERE w.run = r.run), 0)
