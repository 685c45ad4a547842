-- In which families of prompts was it learned?
-- $run = latest: run id
SELECT p.stratum, r.step, avg(r.correct) AS pass_rate, avg(r.reward) AS reward, count(*) AS rollouts
FROM rollouts r JOIN prompts p ON p.run = r.run AND p.pool = 'eval' AND p.prompt_id = r.prompt_id
WHERE r.run = $run AND r.purpose = 'eval' AND r.context = ''
GROUP BY ALL ORDER BY p.stratum, r.step
