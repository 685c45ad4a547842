-- Which runs are there, and how does each stand?
SELECT s.run, s.status, s.last_step, s.started, s.last_record, s.attempt, r.name, r.seed, r.n_prompts, r.n_evaluation,
    r.world ->> 'model' AS model, a.pipeline, r.parent, r.parent_step, a.code_version, s.message
FROM run_status s JOIN runs r USING (run) JOIN (
        SELECT run, attempt, arg_min(pipeline, rank) AS pipeline, min(code_version) AS code_version FROM attempts GROUP BY ALL
    ) a USING (run, attempt)
ORDER BY s.started DESC, s.run DESC
