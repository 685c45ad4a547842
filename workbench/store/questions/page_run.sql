-- What is this run: its experiment, its world, and who acted at each verb, and how far it was to go, when it was opened last?
-- $run = latest: run id
SELECT r.run, r.name, r.experiment, r.world, r.n_prompts, r.n_evaluation, r.started,
       (SELECT a.pipeline FROM attempts a WHERE a.run = r.run ORDER BY a.attempt DESC LIMIT 1) AS who,
       coalesce((SELECT a.target FROM attempts a WHERE a.run = r.run ORDER BY a.attempt DESC, a.rank LIMIT 1),
           (r.experiment ->> 'steps')::INTEGER) AS target,
       (SELECT c.payload FROM commands c WHERE c.run = r.run AND c.kind = 'swap' ORDER BY c.step DESC, c.seq DESC LIMIT 1)
           AS swapped,
       (SELECT max(s.step) FROM steps s WHERE s.run = r.run) AS step
FROM runs r
WHERE r.run = $run
