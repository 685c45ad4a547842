-- Which methods recorded beliefs, and which columns of their own?
-- $run = latest: run id
SELECT method, max(step) AS last_step, count(*) AS rows, map_keys(any_value(more)) AS own_columns
FROM beliefs WHERE run = $run GROUP BY method ORDER BY method
