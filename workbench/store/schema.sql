-- What does the store keep? Every table and column of a trajectory store, in DuckDB's SQL: the one declaration.
-- Writers take their Arrow schemas from it, readers their empty tables, the dashboard its tooltips.
-- Null means not known. Key of a rollout: (run, rank, step, row). Key of a commit: (run, rank, seq).
-- schema_version 5
-- 2: nodes, decisions; advantages.node_id and zero; attempts.retention, share, kept and ranks. Older files are read as they are: what they lack is empty or null.
-- 3: the same tables; a commit holds them in one file, tables.bundle, which earlier programs do not know.
-- 4: rollouts.temperature, attempts.target.
-- 5: nodes.trained_rows, nodes.trained_leaves.

CREATE TABLE commits (
    run VARCHAR,
    rank SMALLINT,
    seq INTEGER,
    attempt SMALLINT,
    kind VARCHAR,
    step INTEGER,
    time TIMESTAMP,
    schema_version INTEGER
);
COMMENT ON TABLE commits IS 'What was recorded in one piece: one commit directory, whole or absent.';
COMMENT ON COLUMN commits.run IS 'Run id, e.g. 2026-11-28-sim-k3f2.';
COMMENT ON COLUMN commits.rank IS 'Writer of the run that recorded the row; 0 where one process trains.';
COMMENT ON COLUMN commits.seq IS 'Commit that holds the row: (run, rank, seq) names one commit directory, see commits.';
COMMENT ON COLUMN commits.attempt IS 'How often the run had been resumed by then; 0 is the first start.';
COMMENT ON COLUMN commits.kind IS 'open, step, evaluation, beliefs, note (commands and events between steps) or close.';
COMMENT ON COLUMN commits.step IS 'Training step; 0 is before any update.';
COMMENT ON COLUMN commits.time IS 'When it was handed to the recorder, UTC.';
COMMENT ON COLUMN commits.schema_version IS 'Version of this schema that wrote it.';

CREATE TABLE runs (
    run VARCHAR,
    rank SMALLINT,
    seq INTEGER,
    started TIMESTAMP,
    name VARCHAR,
    experiment JSON,
    world JSON,
    seed BIGINT,
    parent VARCHAR,
    parent_step INTEGER,
    n_prompts INTEGER,
    n_evaluation INTEGER
);
COMMENT ON TABLE runs IS 'One row per run: the experiment as data.';
COMMENT ON COLUMN runs.run IS 'Run id, e.g. 2026-11-28-sim-k3f2.';
COMMENT ON COLUMN runs.rank IS 'Writer of the run that recorded the row; 0 where one process trains.';
COMMENT ON COLUMN runs.seq IS 'Commit that holds the row: (run, rank, seq) names one commit directory, see commits.';
COMMENT ON COLUMN runs.started IS 'UTC.';
COMMENT ON COLUMN runs.name IS 'Short name of the experiment, part of the run id.';
COMMENT ON COLUMN runs.experiment IS 'The whole experiment, enough to start it again.';
COMMENT ON COLUMN runs.world IS 'Facts of the world: model, parameters, dtype, device.';
COMMENT ON COLUMN runs.seed IS 'Seed of the run; null where the experiment names none.';
COMMENT ON COLUMN runs.parent IS 'Run that this one continues or forks from; null for none.';
COMMENT ON COLUMN runs.parent_step IS 'Last step shared with the parent; null for none.';
COMMENT ON COLUMN runs.n_prompts IS 'Prompts of the training pool.';
COMMENT ON COLUMN runs.n_evaluation IS 'Prompts of the evaluation set.';

CREATE TABLE attempts (
    run VARCHAR,
    rank SMALLINT,
    seq INTEGER,
    attempt SMALLINT,
    from_step INTEGER,
    started TIMESTAMP,
    pipeline JSON,
    code_version VARCHAR,
    machine JSON,
    retention VARCHAR,
    share DOUBLE,
    kept VARCHAR[],
    ranks SMALLINT,
    target INTEGER
);
COMMENT ON TABLE attempts IS 'One row each time a writer opened the run: the first start and every resume.';
COMMENT ON COLUMN attempts.run IS 'Run id, e.g. 2026-11-28-sim-k3f2.';
COMMENT ON COLUMN attempts.rank IS 'Writer of the run that recorded the row; 0 where one process trains.';
COMMENT ON COLUMN attempts.seq IS 'Commit that holds the row: (run, rank, seq) names one commit directory, see commits.';
COMMENT ON COLUMN attempts.attempt IS '0 for the first start, then 1, 2, ...';
COMMENT ON COLUMN attempts.from_step IS 'First step this attempt may record; steps from here on recorded by earlier attempts are superseded (kept, but hidden from the views).';
COMMENT ON COLUMN attempts.started IS 'UTC.';
COMMENT ON COLUMN attempts.pipeline IS 'Verb -> names of the methods acting there, in order.';
COMMENT ON COLUMN attempts.code_version IS 'Version of the workbench.';
COMMENT ON COLUMN attempts.machine IS 'Host, process id, platform, processors, Python, package versions.';
COMMENT ON COLUMN attempts.ranks IS 'Ranks that write the run together: a step is shown once all of them recorded it; null = 1.';
COMMENT ON COLUMN attempts.target IS 'Step after which the run is finished, as this attempt has it; null where it was not told, and in rows of schema versions 1 to 3: then it is what the experiment says.';
COMMENT ON COLUMN attempts.retention IS 'Token-level columns are kept for all groups, a sample or none.';
COMMENT ON COLUMN attempts.share IS 'Share of the groups that is kept.';
COMMENT ON COLUMN attempts.kept IS 'Token-level columns kept for all groups in any case: those that a method needs, and role with them.';

CREATE TABLE statuses (
    run VARCHAR,
    rank SMALLINT,
    seq INTEGER,
    attempt SMALLINT,
    status VARCHAR,
    time TIMESTAMP,
    last_step INTEGER,
    message VARCHAR
);
COMMENT ON TABLE statuses IS 'What writers said about the end of a run; the status a reader shows also needs a look at the writer''s lock.';
COMMENT ON COLUMN statuses.run IS 'Run id, e.g. 2026-11-28-sim-k3f2.';
COMMENT ON COLUMN statuses.rank IS 'Writer of the run that recorded the row; 0 where one process trains.';
COMMENT ON COLUMN statuses.seq IS 'Commit that holds the row: (run, rank, seq) names one commit directory, see commits.';
COMMENT ON COLUMN statuses.attempt IS 'Attempt that ended.';
COMMENT ON COLUMN statuses.status IS 'finished, stopped (by the researcher) or failed.';
COMMENT ON COLUMN statuses.time IS 'UTC.';
COMMENT ON COLUMN statuses.last_step IS 'Last step recorded by then.';
COMMENT ON COLUMN statuses.message IS 'The error of a failed run; empty otherwise.';

CREATE TABLE prompts (
    run VARCHAR,
    rank SMALLINT,
    seq INTEGER,
    pool VARCHAR,
    position INTEGER,
    prompt_id VARCHAR,
    stratum VARCHAR,
    text VARCHAR,
    answer VARCHAR,
    prefix VARCHAR
);
COMMENT ON TABLE prompts IS 'The prompts of a run: training pool and evaluation set, disjoint.';
COMMENT ON COLUMN prompts.run IS 'Run id, e.g. 2026-11-28-sim-k3f2.';
COMMENT ON COLUMN prompts.rank IS 'Writer of the run that recorded the row; 0 where one process trains.';
COMMENT ON COLUMN prompts.seq IS 'Commit that holds the row: (run, rank, seq) names one commit directory, see commits.';
COMMENT ON COLUMN prompts.pool IS 'train or eval.';
COMMENT ON COLUMN prompts.position IS 'Row in the pool, which arrays and plans in memory use.';
COMMENT ON COLUMN prompts.prompt_id IS 'Stable prompt id, equal across runs and machines; see prompts.';
COMMENT ON COLUMN prompts.stratum IS 'Family of the prompt.';
COMMENT ON COLUMN prompts.text IS 'The prompt as asked. Untrusted text.';
COMMENT ON COLUMN prompts.answer IS 'Reference answer the verifier compares with. Untrusted text.';
COMMENT ON COLUMN prompts.prefix IS 'Prefilled start of the answer; empty for none. Untrusted text.';

CREATE TABLE steps (
    run VARCHAR,
    rank SMALLINT,
    seq INTEGER,
    step INTEGER,
    time TIMESTAMP,
    prompts VARCHAR[],
    folded_through INTEGER,
    n_rollouts INTEGER,
    n_tokens BIGINT,
    seconds DOUBLE
);
COMMENT ON TABLE steps IS 'One row per finished training step.';
COMMENT ON COLUMN steps.run IS 'Run id, e.g. 2026-11-28-sim-k3f2.';
COMMENT ON COLUMN steps.rank IS 'Writer of the run that recorded the row; 0 where one process trains.';
COMMENT ON COLUMN steps.seq IS 'Commit that holds the row: (run, rank, seq) names one commit directory, see commits.';
COMMENT ON COLUMN steps.step IS 'Training step; 0 is before any update.';
COMMENT ON COLUMN steps.time IS 'When the step was handed to the recorder, UTC.';
COMMENT ON COLUMN steps.prompts IS 'Ids of the prompts chosen for the step, in the order of choice.';
COMMENT ON COLUMN steps.folded_through IS 'Last step the plan''s deciders had learned from: step - 1 unless generation runs ahead.';
COMMENT ON COLUMN steps.n_rollouts IS 'Rollouts that took part, carried and replayed ones included.';
COMMENT ON COLUMN steps.n_tokens IS 'Tokens generated in the step, each counted once.';
COMMENT ON COLUMN steps.seconds IS 'Wall time of all phases.';

CREATE TABLE asks (
    run VARCHAR,
    rank SMALLINT,
    seq INTEGER,
    step INTEGER,
    ask INTEGER,
    round INTEGER,
    prompt_id VARCHAR,
    n INTEGER,
    ordinal INTEGER,
    max_tokens INTEGER,
    purpose VARCHAR,
    context VARCHAR,
    start_kind VARCHAR,
    start VARCHAR,
    start_role VARCHAR,
    why MAP(VARCHAR, DOUBLE)
);
COMMENT ON TABLE asks IS 'The plan of a step, one row per ask: how many rollouts of which prompt, and why.';
COMMENT ON COLUMN asks.run IS 'Run id, e.g. 2026-11-28-sim-k3f2.';
COMMENT ON COLUMN asks.rank IS 'Writer of the run that recorded the row; 0 where one process trains.';
COMMENT ON COLUMN asks.seq IS 'Commit that holds the row: (run, rank, seq) names one commit directory, see commits.';
COMMENT ON COLUMN asks.step IS 'Training step; 0 is before any update.';
COMMENT ON COLUMN asks.ask IS 'Row in the step''s plan; rollouts.ask refers to it.';
COMMENT ON COLUMN asks.round IS 'Round of the step that asked: 0, then refills and second stages.';
COMMENT ON COLUMN asks.prompt_id IS 'Stable prompt id, equal across runs and machines; see prompts.';
COMMENT ON COLUMN asks.n IS 'Rollouts asked for.';
COMMENT ON COLUMN asks.ordinal IS 'Rollouts of the same prompt and purpose asked before in this step; rollout ids count on from it.';
COMMENT ON COLUMN asks.max_tokens IS 'Cap on generated tokens; 0 = the world''s limit.';
COMMENT ON COLUMN asks.purpose IS 'train, probe, profile, reference, teacher or eval.';
COMMENT ON COLUMN asks.context IS 'What was added to the prompt; empty for the plain prompt, the only evidence of its difficulty.';
COMMENT ON COLUMN asks.start_kind IS 'prompt, node, text or resume: where generation starts.';
COMMENT ON COLUMN asks.start IS 'Node id, text or rollout id to start from; null for prompt.';
COMMENT ON COLUMN asks.start_role IS 'Role that wrote a text start; null otherwise.';
COMMENT ON COLUMN asks.why IS 'The numbers the decision was made from; null = not known.';

CREATE TABLE rollouts (
    run VARCHAR,
    rank SMALLINT,
    seq INTEGER,
    step INTEGER,
    row INTEGER,
    rollout_id VARCHAR,
    prompt_id VARCHAR,
    ask INTEGER,
    group_id INTEGER,
    origin VARCHAR,
    born INTEGER,
    purpose VARCHAR,
    context VARCHAR,
    reward DOUBLE,
    correct DOUBLE,
    length INTEGER,
    inherited INTEGER,
    finish VARCHAR,
    version INTEGER,
    parent VARCHAR,
    fork_at INTEGER,
    failure VARCHAR,
    temperature DOUBLE
);
COMMENT ON TABLE rollouts IS 'One row per rollout and step it took part in: the narrow table, without text and tokens.';
COMMENT ON COLUMN rollouts.run IS 'Run id, e.g. 2026-11-28-sim-k3f2.';
COMMENT ON COLUMN rollouts.rank IS 'Writer of the run that recorded the row; 0 where one process trains.';
COMMENT ON COLUMN rollouts.seq IS 'Commit that holds the row: (run, rank, seq) names one commit directory, see commits.';
COMMENT ON COLUMN rollouts.step IS 'Training step; 0 is before any update.';
COMMENT ON COLUMN rollouts.row IS 'Place of the rollout in its step, from 0; evaluation rollouts count down from -1. (run, rank, step, row) is the key of a rollout in every table.';
COMMENT ON COLUMN rollouts.rollout_id IS 'Rollout id: step:prompt:k, with the purpose in front where it is not train.';
COMMENT ON COLUMN rollouts.prompt_id IS 'Stable prompt id, equal across runs and machines; see prompts.';
COMMENT ON COLUMN rollouts.ask IS 'Row of the plan that asked for it; -1 for none.';
COMMENT ON COLUMN rollouts.group_id IS 'Normalisation group inside the step.';
COMMENT ON COLUMN rollouts.origin IS 'generated in this step; carried in from an earlier one; replayed (used again) or foreign (generated elsewhere): the last two are no new tokens.';
COMMENT ON COLUMN rollouts.born IS 'Step in which generation began.';
COMMENT ON COLUMN rollouts.purpose IS 'train, probe, profile, reference, teacher or eval. Only train and the plain context are evidence of difficulty.';
COMMENT ON COLUMN rollouts.context IS 'As in asks.';
COMMENT ON COLUMN rollouts.reward IS 'What training uses; null where the verifier gave none.';
COMMENT ON COLUMN rollouts.correct IS '1 solved, 0 not, null unknown: the evidence of difficulty.';
COMMENT ON COLUMN rollouts.length IS 'Tokens of the completion.';
COMMENT ON COLUMN rollouts.inherited IS 'Of these, tokens generated before this row (carried in, or the shared part of a resumed rollout); length - inherited are new.';
COMMENT ON COLUMN rollouts.finish IS 'stop, length, aborted, pruned or carried.';
COMMENT ON COLUMN rollouts.version IS 'Optimiser updates that the sampling policy had seen.';
COMMENT ON COLUMN rollouts.parent IS 'Rollout it was forked or resumed from; empty for none.';
COMMENT ON COLUMN rollouts.fork_at IS 'Token at which it left its parent; -1 for none.';
COMMENT ON COLUMN rollouts.temperature IS 'Of the sampler that made its last token, the one behaviour log-probabilities are of: all it takes, nothing is cut off (top-p 1, no top-k). Null where there is no sampler, and in rows of schema versions 1 to 3.';
COMMENT ON COLUMN rollouts.failure IS 'What failed: verifier_raised, verifier_timeout, verifier_died (its process), verifier_memory, verifier_invalid (no verdict), verifier_nan, ...; empty for nothing. The first message of each kind is in events.';

CREATE TABLE completions (
    run VARCHAR,
    rank SMALLINT,
    seq INTEGER,
    step INTEGER,
    row INTEGER,
    rollout_id VARCHAR,
    text VARCHAR,
    answer VARCHAR,
    tokens INTEGER[],
    logp FLOAT[],
    entropy FLOAT[],
    role TINYINT[],
    proximal FLOAT[],
    current FLOAT[]
);
COMMENT ON TABLE completions IS 'Text and tokens of rollouts: the wide table, read by the page, never joined into overviews.';
COMMENT ON COLUMN completions.run IS 'Run id, e.g. 2026-11-28-sim-k3f2.';
COMMENT ON COLUMN completions.rank IS 'Writer of the run that recorded the row; 0 where one process trains.';
COMMENT ON COLUMN completions.seq IS 'Commit that holds the row: (run, rank, seq) names one commit directory, see commits.';
COMMENT ON COLUMN completions.step IS 'Training step; 0 is before any update.';
COMMENT ON COLUMN completions.row IS 'Place of the rollout in its step, from 0; evaluation rollouts count down from -1. (run, rank, step, row) is the key of a rollout in every table.';
COMMENT ON COLUMN completions.rollout_id IS 'Rollout id: step:prompt:k, with the purpose in front where it is not train.';
COMMENT ON COLUMN completions.text IS 'The completion as generated. Untrusted text.';
COMMENT ON COLUMN completions.answer IS 'What the verifier took for the answer; null for none. Untrusted text.';
COMMENT ON COLUMN completions.tokens IS 'Token ids; null where not kept.';
COMMENT ON COLUMN completions.logp IS 'Behaviour log-probability of each token, nats, of the distribution that was sampled; null where not kept.';
COMMENT ON COLUMN completions.entropy IS 'Entropy of that distribution, nats; null where not kept.';
COMMENT ON COLUMN completions.role IS 'Author of each token: 0 the policy, 1 a hint that stands in front of its own because it is trained; null where not kept.';
COMMENT ON COLUMN completions.proximal IS 'Log-probability under the policy at the start of the update; null where not kept.';
COMMENT ON COLUMN completions.current IS 'Log-probability under the policy after it; null where not kept.';

CREATE TABLE rewards (
    run VARCHAR,
    rank SMALLINT,
    seq INTEGER,
    step INTEGER,
    row INTEGER,
    rollout_id VARCHAR,
    part VARCHAR,
    value DOUBLE
);
COMMENT ON TABLE rewards IS 'Named reward parts, one row per rollout and part.';
COMMENT ON COLUMN rewards.run IS 'Run id, e.g. 2026-11-28-sim-k3f2.';
COMMENT ON COLUMN rewards.rank IS 'Writer of the run that recorded the row; 0 where one process trains.';
COMMENT ON COLUMN rewards.seq IS 'Commit that holds the row: (run, rank, seq) names one commit directory, see commits.';
COMMENT ON COLUMN rewards.step IS 'Training step; 0 is before any update.';
COMMENT ON COLUMN rewards.row IS 'Place of the rollout in its step, from 0; evaluation rollouts count down from -1. (run, rank, step, row) is the key of a rollout in every table.';
COMMENT ON COLUMN rewards.rollout_id IS 'Rollout id: step:prompt:k, with the purpose in front where it is not train.';
COMMENT ON COLUMN rewards.part IS 'format, closeness, exactness, ...';
COMMENT ON COLUMN rewards.value IS 'Null where the part could not be computed.';

CREATE TABLE nodes (
    run VARCHAR,
    rank SMALLINT,
    seq INTEGER,
    step INTEGER,
    node_id VARCHAR,
    tree_id VARCHAR,
    parent_id VARCHAR,
    prompt_id VARCHAR,
    group_id INTEGER,
    row INTEGER,
    agent_id VARCHAR,
    call_id VARCHAR,
    kind VARCHAR,
    segment_depth INTEGER,
    fork_depth INTEGER,
    turn INTEGER,
    token_start INTEGER,
    n_tokens INTEGER,
    entropy_at_fork DOUBLE,
    confidence_at_fork DOUBLE,
    entropy_mean DOUBLE,
    choice VARCHAR,
    behaviour_logprob DOUBLE,
    sampled_under VARCHAR,
    policy_version INTEGER,
    temperature DOUBLE,
    top_p DOUBLE,
    status VARCHAR,
    reason VARCHAR,
    at_step INTEGER,
    reward DOUBLE,
    reward_parts MAP(VARCHAR, DOUBLE),
    value DOUBLE,
    n_leaves INTEGER,
    duplicate_of VARCHAR,
    replaced_by VARCHAR,
    derived_from VARCHAR,
    anchor_hash VARCHAR,
    anchor_ref VARCHAR,
    trained BOOLEAN,
    untrained_reason VARCHAR,
    trained_rows INTEGER,
    trained_leaves INTEGER
);
COMMENT ON TABLE nodes IS 'Trees of rollouts: a node is a run of tokens with one author and no fork inside, parents before children. Flat rollouts have no rows here; the view trees derives them as a root and one leaf.';
COMMENT ON COLUMN nodes.run IS 'Run id, e.g. 2026-11-28-sim-k3f2.';
COMMENT ON COLUMN nodes.rank IS 'Writer of the run that recorded the row; 0 where one process trains.';
COMMENT ON COLUMN nodes.seq IS 'Commit that holds the row: (run, rank, seq) names one commit directory, see commits.';
COMMENT ON COLUMN nodes.step IS 'Training step; 0 is before any update.';
COMMENT ON COLUMN nodes.node_id IS 'Unique in its run and step; paths such as tree/0.2.1 sort in drawing order.';
COMMENT ON COLUMN nodes.tree_id IS 'The prompt instance the node belongs to.';
COMMENT ON COLUMN nodes.parent_id IS 'Node it continues; null only for the root.';
COMMENT ON COLUMN nodes.prompt_id IS 'Stable prompt id, equal across runs and machines; see prompts.';
COMMENT ON COLUMN nodes.group_id IS 'Normalisation group of its rollouts inside the step.';
COMMENT ON COLUMN nodes.row IS 'Rollout that ends in this node (its row in the step), where one does; its tokens lie in the completions of any rollout that ends in it or below it.';
COMMENT ON COLUMN nodes.agent_id IS 'Agent that acted, where there are several.';
COMMENT ON COLUMN nodes.call_id IS 'Call of the agent.';
COMMENT ON COLUMN nodes.kind IS 'prompt, model, tool, feedback or probe: who wrote the tokens.';
COMMENT ON COLUMN nodes.segment_depth IS 'Nodes above it.';
COMMENT ON COLUMN nodes.fork_depth IS 'Forks above it.';
COMMENT ON COLUMN nodes.turn IS 'Step of the environment.';
COMMENT ON COLUMN nodes.token_start IS 'Tokens before it in the sequence of every leaf below, the prompt''s included: token_start + n_tokens of its parent.';
COMMENT ON COLUMN nodes.n_tokens IS 'Tokens of the node itself.';
COMMENT ON COLUMN nodes.entropy_at_fork IS 'Entropy at its first token, nats.';
COMMENT ON COLUMN nodes.confidence_at_fork IS 'Confidence at its first token.';
COMMENT ON COLUMN nodes.entropy_mean IS 'Mean entropy of its tokens, nats.';
COMMENT ON COLUMN nodes.choice IS 'How its first token was set: sampled, greedy or forced.';
COMMENT ON COLUMN nodes.behaviour_logprob IS 'Log-probability of its tokens, summed, under the sampling policy in its sampling context, nats.';
COMMENT ON COLUMN nodes.sampled_under IS 'Node whose path was the sampling context; null = the parent.';
COMMENT ON COLUMN nodes.policy_version IS 'Optimiser updates that the sampling policy had seen.';
COMMENT ON COLUMN nodes.temperature IS 'Of the sampler, as in rollouts.';
COMMENT ON COLUMN nodes.top_p IS 'Of the sampler; null = it cuts nothing off.';
COMMENT ON COLUMN nodes.status IS 'live, pruned or discarded; of a node with nothing alive below it, what became of that.';
COMMENT ON COLUMN nodes.reason IS 'Why it was pruned or discarded; empty where live.';
COMMENT ON COLUMN nodes.at_step IS 'Decode step or turn of that decision.';
COMMENT ON COLUMN nodes.reward IS 'Of a leaf, or the verdict of a probe; null where there is none.';
COMMENT ON COLUMN nodes.reward_parts IS 'Named parts of it.';
COMMENT ON COLUMN nodes.value IS 'Mean reward of the live rewarded leaves below, itself included; null without any.';
COMMENT ON COLUMN nodes.n_leaves IS 'How many those are.';
COMMENT ON COLUMN nodes.duplicate_of IS 'Node of which it is a padding copy that was not generated; null for none.';
COMMENT ON COLUMN nodes.replaced_by IS 'Node that repaired it.';
COMMENT ON COLUMN nodes.derived_from IS 'Node or rollout it was made from, also of another tree.';
COMMENT ON COLUMN nodes.anchor_hash IS 'Hash of what the environment showed before it.';
COMMENT ON COLUMN nodes.anchor_ref IS 'Where that is kept.';
COMMENT ON COLUMN nodes.trained IS 'Whether an advantage acts on its tokens; null for nodes without tokens of the policy, and in rows of schema versions 1 to 4.';
COMMENT ON COLUMN nodes.untrained_reason IS 'zero_advantage, or the fate of the rollouts through it (all below where they differ); empty where trained.';
COMMENT ON COLUMN nodes.trained_rows IS 'Training rows in which an advantage acts on its tokens: 1 where a shared segment is trained once (a row per node), trained_leaves where every rollout is trained with its whole path (a row per leaf). Null as for trained.';
COMMENT ON COLUMN nodes.trained_leaves IS 'Rollouts through it of which an advantage acts on any token. Null as for trained.';

CREATE TABLE decisions (
    run VARCHAR,
    rank SMALLINT,
    seq INTEGER,
    step INTEGER,
    position INTEGER,
    node_id VARCHAR,
    at_token INTEGER,
    kind VARCHAR,
    inputs MAP(VARCHAR, DOUBLE),
    outcome VARCHAR,
    weight DOUBLE
);
COMMENT ON TABLE decisions IS 'Every test for a fork, a suppression, a cut or a branch that was made at a node, also those that changed nothing; of these a sample where there are many.';
COMMENT ON COLUMN decisions.run IS 'Run id, e.g. 2026-11-28-sim-k3f2.';
COMMENT ON COLUMN decisions.rank IS 'Writer of the run that recorded the row; 0 where one process trains.';
COMMENT ON COLUMN decisions.seq IS 'Commit that holds the row: (run, rank, seq) names one commit directory, see commits.';
COMMENT ON COLUMN decisions.step IS 'Training step; 0 is before any update.';
COMMENT ON COLUMN decisions.position IS 'Order in the step.';
COMMENT ON COLUMN decisions.node_id IS 'Node it was made at; of a flat rollout its rollout id.';
COMMENT ON COLUMN decisions.at_token IS 'Token of the node at which it was made.';
COMMENT ON COLUMN decisions.kind IS 'fork, suppress, prune, branch, ...';
COMMENT ON COLUMN decisions.inputs IS 'The numbers it was made from.';
COMMENT ON COLUMN decisions.outcome IS 'What was done: fork:2, suppressed (there was no room for the forks that were wanted), a reason to cut, or no = nothing.';
COMMENT ON COLUMN decisions.weight IS 'Tests the row stands for: above 1 where those that changed nothing were sampled.';

CREATE TABLE advantages (
    run VARCHAR,
    rank SMALLINT,
    seq INTEGER,
    step INTEGER,
    row INTEGER,
    rollout_id VARCHAR,
    estimator VARCHAR,
    term VARCHAR,
    value DOUBLE,
    baseline DOUBLE,
    weight DOUBLE,
    keep BOOLEAN,
    reason VARCHAR,
    tokens DOUBLE[],
    node_id VARCHAR,
    zero BOOLEAN
);
COMMENT ON TABLE advantages IS 'What estimators said, one row per rollout or node, estimator and term.';
COMMENT ON COLUMN advantages.run IS 'Run id, e.g. 2026-11-28-sim-k3f2.';
COMMENT ON COLUMN advantages.rank IS 'Writer of the run that recorded the row; 0 where one process trains.';
COMMENT ON COLUMN advantages.seq IS 'Commit that holds the row: (run, rank, seq) names one commit directory, see commits.';
COMMENT ON COLUMN advantages.step IS 'Training step; 0 is before any update.';
COMMENT ON COLUMN advantages.row IS 'Place of the rollout in its step, from 0; evaluation rollouts count down from -1. (run, rank, step, row) is the key of a rollout in every table.';
COMMENT ON COLUMN advantages.rollout_id IS 'Rollout id: step:prompt:k, with the purpose in front where it is not train.';
COMMENT ON COLUMN advantages.estimator IS 'Methods that made it, joined by +.';
COMMENT ON COLUMN advantages.term IS 'final = what entered the loss; other names are parts of it.';
COMMENT ON COLUMN advantages.value IS 'Advantage.';
COMMENT ON COLUMN advantages.baseline IS 'What the reward was compared with; null where not told.';
COMMENT ON COLUMN advantages.weight IS 'Multiplies the loss of the rollout.';
COMMENT ON COLUMN advantages.keep IS 'False leaves the loss, never the store.';
COMMENT ON COLUMN advantages.reason IS 'Why it left the loss; empty where kept.';
COMMENT ON COLUMN advantages.tokens IS 'Advantage of each token where the estimator has them and they are kept; null otherwise.';
COMMENT ON COLUMN advantages.node_id IS 'Node it is said of; null for a rollout. Then row and rollout_id name the leaf where a shared node has a value for each, and are null otherwise.';
COMMENT ON COLUMN advantages.zero IS 'Neither value nor any token advantage acts; null in rows of schema version 1 and of nodes.';

CREATE TABLE fates (
    run VARCHAR,
    rank SMALLINT,
    seq INTEGER,
    step INTEGER,
    row INTEGER,
    rollout_id VARCHAR,
    prompt_id VARCHAR,
    purpose VARCHAR,
    origin VARCHAR,
    fate VARCHAR,
    reason VARCHAR,
    tokens INTEGER
);
COMMENT ON TABLE fates IS 'What became of a rollout at the end of a step: append-only events, one per rollout and step.';
COMMENT ON COLUMN fates.run IS 'Run id, e.g. 2026-11-28-sim-k3f2.';
COMMENT ON COLUMN fates.rank IS 'Writer of the run that recorded the row; 0 where one process trains.';
COMMENT ON COLUMN fates.seq IS 'Commit that holds the row: (run, rank, seq) names one commit directory, see commits.';
COMMENT ON COLUMN fates.step IS 'Training step; 0 is before any update.';
COMMENT ON COLUMN fates.row IS 'Place of the rollout in its step, from 0; evaluation rollouts count down from -1. (run, rank, step, row) is the key of a rollout in every table.';
COMMENT ON COLUMN fates.rollout_id IS 'Rollout id: step:prompt:k, with the purpose in front where it is not train.';
COMMENT ON COLUMN fates.prompt_id IS 'Stable prompt id, equal across runs and machines; see prompts.';
COMMENT ON COLUMN fates.purpose IS 'As in rollouts.';
COMMENT ON COLUMN fates.origin IS 'As in rollouts; replayed and foreign rows stand outside the balance.';
COMMENT ON COLUMN fates.fate IS 'trained, dropped, pruned, discarded, carried (out, to a later step) or failed.';
COMMENT ON COLUMN fates.reason IS 'zero_advantage for trained rows on which the policy term does not act; why it was dropped, pruned or failed; purpose for rollouts not made for training.';
COMMENT ON COLUMN fates.tokens IS 'Tokens that met this fate, a shared prefix counted once.';

CREATE TABLE beliefs (
    run VARCHAR,
    rank SMALLINT,
    seq INTEGER,
    step INTEGER,
    method VARCHAR,
    prompt_id VARCHAR,
    mean DOUBLE,
    low DOUBLE,
    high DOUBLE,
    more MAP(VARCHAR, DOUBLE)
);
COMMENT ON TABLE beliefs IS 'What a method believes of a prompt after a step; append-only, the latest row up to a step holds (forward fill). Written for all prompts at a run''s first record, then for those observed or moved by more than the tolerance.';
COMMENT ON COLUMN beliefs.run IS 'Run id, e.g. 2026-11-28-sim-k3f2.';
COMMENT ON COLUMN beliefs.rank IS 'Writer of the run that recorded the row; 0 where one process trains.';
COMMENT ON COLUMN beliefs.seq IS 'Commit that holds the row: (run, rank, seq) names one commit directory, see commits.';
COMMENT ON COLUMN beliefs.step IS 'Training step; 0 is before any update.';
COMMENT ON COLUMN beliefs.method IS 'Method that believes it.';
COMMENT ON COLUMN beliefs.prompt_id IS 'Stable prompt id, equal across runs and machines; see prompts.';
COMMENT ON COLUMN beliefs.mean IS 'Believed chance that the current policy solves the prompt; null = no opinion.';
COMMENT ON COLUMN beliefs.low IS 'Lower end of its interval.';
COMMENT ON COLUMN beliefs.high IS 'Upper end of its interval.';
COMMENT ON COLUMN beliefs.more IS 'The method''s own columns.';

CREATE TABLE commands (
    run VARCHAR,
    rank SMALLINT,
    seq INTEGER,
    step INTEGER,
    time TIMESTAMP,
    kind VARCHAR,
    payload JSON,
    who VARCHAR
);
COMMENT ON TABLE commands IS 'What the researcher did, and when.';
COMMENT ON COLUMN commands.run IS 'Run id, e.g. 2026-11-28-sim-k3f2.';
COMMENT ON COLUMN commands.rank IS 'Writer of the run that recorded the row; 0 where one process trains.';
COMMENT ON COLUMN commands.seq IS 'Commit that holds the row: (run, rank, seq) names one commit directory, see commits.';
COMMENT ON COLUMN commands.step IS 'Training step; 0 is before any update.';
COMMENT ON COLUMN commands.time IS 'UTC.';
COMMENT ON COLUMN commands.kind IS 'start, pause, resume, stop, swap, pin, drop, budget, ...';
COMMENT ON COLUMN commands.payload IS 'Arguments of the command.';
COMMENT ON COLUMN commands.who IS 'cli, notebook, dashboard, ...';

CREATE TABLE events (
    run VARCHAR,
    rank SMALLINT,
    seq INTEGER,
    step INTEGER,
    time TIMESTAMP,
    position INTEGER,
    source VARCHAR,
    kind VARCHAR,
    subject VARCHAR,
    message VARCHAR,
    count INTEGER
);
COMMENT ON TABLE events IS 'Warnings, failures and notes of the run.';
COMMENT ON COLUMN events.run IS 'Run id, e.g. 2026-11-28-sim-k3f2.';
COMMENT ON COLUMN events.rank IS 'Writer of the run that recorded the row; 0 where one process trains.';
COMMENT ON COLUMN events.seq IS 'Commit that holds the row: (run, rank, seq) names one commit directory, see commits.';
COMMENT ON COLUMN events.step IS 'Training step; 0 is before any update.';
COMMENT ON COLUMN events.time IS 'UTC.';
COMMENT ON COLUMN events.position IS 'Order inside the commit.';
COMMENT ON COLUMN events.source IS 'step (part of the finished step), session or store.';
COMMENT ON COLUMN events.kind IS 'note, warning or failure.';
COMMENT ON COLUMN events.subject IS 'What it is about.';
COMMENT ON COLUMN events.message IS 'For people. May quote untrusted text.';
COMMENT ON COLUMN events.count IS 'How many times, or rollouts concerned.';

CREATE TABLE metrics (
    run VARCHAR,
    rank SMALLINT,
    seq INTEGER,
    step INTEGER,
    name VARCHAR,
    value DOUBLE,
    text VARCHAR
);
COMMENT ON TABLE metrics IS 'Numbers of a step that the update reported.';
COMMENT ON COLUMN metrics.run IS 'Run id, e.g. 2026-11-28-sim-k3f2.';
COMMENT ON COLUMN metrics.rank IS 'Writer of the run that recorded the row; 0 where one process trains.';
COMMENT ON COLUMN metrics.seq IS 'Commit that holds the row: (run, rank, seq) names one commit directory, see commits.';
COMMENT ON COLUMN metrics.step IS 'Training step; 0 is before any update.';
COMMENT ON COLUMN metrics.name IS 'loss, grad_norm, kl, lr, ...';
COMMENT ON COLUMN metrics.value IS 'The number; NaN stays NaN, for it is news; null where the value is a text.';
COMMENT ON COLUMN metrics.text IS 'The value where it is no number.';

CREATE TABLE timings (
    run VARCHAR,
    rank SMALLINT,
    seq INTEGER,
    step INTEGER,
    phase VARCHAR,
    seconds DOUBLE
);
COMMENT ON TABLE timings IS 'Seconds of each phase of a step.';
COMMENT ON COLUMN timings.run IS 'Run id, e.g. 2026-11-28-sim-k3f2.';
COMMENT ON COLUMN timings.rank IS 'Writer of the run that recorded the row; 0 where one process trains.';
COMMENT ON COLUMN timings.seq IS 'Commit that holds the row: (run, rank, seq) names one commit directory, see commits.';
COMMENT ON COLUMN timings.step IS 'Training step; 0 is before any update.';
COMMENT ON COLUMN timings.phase IS 'decide, generate, score, estimate, update, ...';
COMMENT ON COLUMN timings.seconds IS 'Wall time.';

CREATE TABLE arrays (
    run VARCHAR,
    rank SMALLINT,
    seq INTEGER,
    step INTEGER,
    scope VARCHAR,
    name VARCHAR,
    dtype VARCHAR,
    shape INTEGER[],
    number DOUBLE[],
    whole BIGINT[],
    text VARCHAR[]
);
COMMENT ON TABLE arrays IS 'Named arrays kept exactly, so that folding equals the live run: notes of deciders, per-rollout extras, pool features. One of the three lists is filled.';
COMMENT ON COLUMN arrays.run IS 'Run id, e.g. 2026-11-28-sim-k3f2.';
COMMENT ON COLUMN arrays.rank IS 'Writer of the run that recorded the row; 0 where one process trains.';
COMMENT ON COLUMN arrays.seq IS 'Commit that holds the row: (run, rank, seq) names one commit directory, see commits.';
COMMENT ON COLUMN arrays.step IS 'Training step; 0 is before any update.';
COMMENT ON COLUMN arrays.scope IS 'notes, rollouts.extra, update, train./eval. followed by features or extra of the pool, or tokens: piece (UTF-8 bytes of each token id, one character per byte) and special (ids that are no text).';
COMMENT ON COLUMN arrays.name IS 'Name in its scope.';
COMMENT ON COLUMN arrays.dtype IS 'numpy dtype to restore.';
COMMENT ON COLUMN arrays.shape IS 'numpy shape to restore.';
COMMENT ON COLUMN arrays.number IS 'Floats and truth values.';
COMMENT ON COLUMN arrays.whole IS 'Integers.';
COMMENT ON COLUMN arrays.text IS 'Strings.';
