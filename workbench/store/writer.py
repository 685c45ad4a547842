"""Record a run: one commit per step, written by a background thread.

`append` checks the ledger and hands the step over; it waits only while the bounded queue is full, and says so as an
event. An error of the background thread (a full disk) is raised at the next call; what was handed over stays in memory
and `retry()` writes it once there is room. `committed` is the last step that is durable.

Beliefs: the first record of an attempt holds every prompt of every method (record `beliefs(0, ...)` before the first
step to have the priors); after that a step writes the prompts it observed and those whose mean, low or high moved by
more than `tolerance` since they were last written. A view draws prompts x steps by forward fill; exact values anywhere
come from folding.
"""

from __future__ import annotations

import atexit
import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from workbench.store.background import Compactor, Recorder
from workbench.store.errors import LedgerError, StoreError
from workbench.store.open import open_writer
from workbench.store.reader import Store
from workbench.store.rows import ledger, tables, trees
from workbench.store.rows.attempts import attempt_table, history, run_tables
from workbench.store.rows.changes import Beliefs, Changes
from workbench.store.rows.commit import Commit
from workbench.store.rows.retention import Retention
from workbench.types import Event, Pool, Rollouts, Step

ENDINGS = ("finished", "stopped", "failed")


class Writer:
    """Records one run into the store at a URL; one writer per run and rank at a time.

    experiment, world and who (verb -> method names) are JSON-able; experiment may name `name` and `seed`. An unknown
    run id starts a run of that name, a known one goes on with it: `start` is the first step that will be recorded
    (default: after the last one; 0: all of it again, what stands before the first step too), and steps from there on recorded earlier are hidden, not deleted.

    rank of ranks: where several processes train one run, each records its rollouts under the same run id; readers show a
    step once all ranks recorded it. Rank 0 records the pool, and one of them beliefs and commands. They go back together:
    when a rank is opened again, the others' steps from there on are hidden until they are opened again too.

    retention: token-level columns (ids, log-probabilities, entropies, ...) are kept for "all" groups, a "sample" of them
    (a share of the groups, by hash) or "none"; those named in needs, which the running pipeline reads, for all.
    target: the step after which the run is finished, where that is known.
    then: what an error says to do once there is room; {run} in it is the run's id.
    pieces: what the token ids stand for, as `store.token_bytes.pieces_of` makes it; kept once, for pages that show tokens.
    """

    def __init__(
        self,
        url: str | Path,
        experiment: Mapping[str, object],
        pool: Pool,
        evaluation: Pool | None = None,
        *,
        run: str | None = None,
        rank: int = 0,
        ranks: int = 1,
        parent: str | None = None,
        parent_step: int | None = None,
        world: Mapping[str, object] | None = None,
        who: Mapping[str, list[str]] | None = None,
        start: int | None = None,
        target: int | None = None,
        retention: str = "all",
        share: float = 0.125,
        needs: frozenset[str] = frozenset(),
        pieces: Mapping[str, object] | None = None,
        tolerance: float = 0.01,
        queue: int = 8,
        compacting: bool = True,
        then: str = "call writer.retry()",
    ) -> None:
        self.pool, self.evaluation_pool = pool, evaluation
        self._retention = Retention(retention, share, frozenset(needs))
        self._then = then
        if not 0 <= rank < ranks:
            raise StoreError(f"rank {rank} is not one of {ranks} ranks, which count from 0")
        self.rank = rank
        self._backend = open_writer(url, run, str(experiment.get("name") or "run"), rank)
        self.run, self.url = self._backend.run, self._backend.url
        self._evaluated: set[int] = set()
        self._changes = Changes(len(pool), tolerance)
        self._closing = self._closed = False
        try:
            last, compacted = self._backend.progress()
            self._seq = last + 1
            self.attempt, self.step, self._carried = 0, (start or 1) - 1, {}
            if last >= 0 or ranks > 1:
                with Store.open(self.url) as store:
                    if text := store.damage_of(self.run):  # what is recorded after it would never be shown
                        raise StoreError(text)
                    self.attempt, self.step, self._carried = history(store, self.run, rank, pool, start)
            opening = [attempt_table(self.attempt, self.step + 1, who or {}, ranks, self._retention, target)]
            if last < 0 and not rank:
                opening[:0] = run_tables(experiment, world or {}, pool, evaluation, parent, parent_step, pieces or {})
        except BaseException:
            self._backend.close()
            raise
        self.step = self.committed = max(self.step, 0)
        self.acting(who or {})
        self._compactor = Compactor(self._backend.compact, compacted, self._not_compacted, compacting)
        self._recorder: Recorder[Commit] = Recorder(self._write, queue, f"recorder {self.run}")
        try:
            self._put(Commit("open", self.step, opening))
            self.flush()
        except BaseException:
            self._release()
            raise
        atexit.register(self._at_exit)

    def acting(self, who: Mapping[str, list[str]], needs: frozenset[str] | None = None) -> None:
        """Name the methods that act from the next step on (verb -> names), and the token columns they need from now on,
        after a change of the pipeline."""
        if needs is not None:
            self._retention = replace(self._retention, needs=frozenset(needs))
        self._estimator = "+".join(who.get("estimate", [])) or "unknown"

    def append(
        self,
        step: Step,
        beliefs: Beliefs | None = None,
        evaluation: Rollouts | None = None,
        *,
        nodes: trees.Given | None = None,
        decisions: trees.Given | None = None,
        scores: trees.Given | None = None,
    ) -> None:
        """Record a finished step, the beliefs after it, an evaluation made after it, and the trees of its rollouts.

        nodes: columns node_id, tree_id, parent_id, n_tokens and any other of the table; row = the rollout that ends in
        the node, -1 for none; rollouts without nodes are flat. decisions: node_id, kind, outcome ("no" = nothing done),
        at_token, inputs. scores: node_id, estimator, term, value, and row where the value is of one leaf only.

        Raises LedgerError where it does not add up (nothing is recorded then), StoreError where an earlier step could not
        be written (this one is not taken then)."""
        self._check_open()
        if step.step <= self.step:
            raise StoreError(
                f"step {step.step} of {self.run} was already recorded (last step {self.step}); to go back, open "
                f"Writer(..., run={self.run!r}, start={step.step})"
            )
        if (step.prompts >= len(self.pool)).any() or (step.plan.prompt >= len(self.pool)).any():
            raise LedgerError(f"step {step.step} names a prompt row beyond the {len(self.pool)} of the pool")
        seen = ledger.origins(step.step, step.rollouts, step.plan, self._carried)
        forest = None if nodes is None else trees.Forest(step.step, nodes, step.rollouts)
        if forest is not None:
            seen = forest.counted_once(seen)
        ledger.check(step, seen, self.pool)
        commit = Commit("step", step.step, beliefs=self._checked(beliefs or {}))
        commit.observed = np.unique(np.concatenate([step.prompts, step.rollouts.prompt]))
        made = tables.step_tables(step, seen, self.pool, self._estimator, commit.time)
        commit.tables.append(self._retention.thin(made, step.step, step.rollouts, self.pool.ids[step.rollouts.prompt]))
        commit.tables.append(trees.tables(step, forest, decisions, scores, self.pool))
        commit.events = [(event, "step") for event in step.events]
        if evaluation is not None:
            commit.tables.append(self._evaluation_tables(step.step, evaluation))
        self._put(commit)
        if evaluation is not None:
            self._evaluated.add(step.step)
        self._carried = ledger.carried_out(step.rollouts, step.fate, self._carried, seen, step.plan)
        self.step = step.step

    def evaluation(self, step: int, rollouts: Rollouts) -> None:
        """Record an evaluation made after a step (0: before any update), rows of the evaluation pool."""
        self._check_open()
        self._put(Commit("evaluation", step, [self._evaluation_tables(step, rollouts)]))
        self._evaluated.add(step)

    def beliefs(self, step: int, beliefs: Beliefs) -> None:
        """Record beliefs outside a step, above all the priors as step 0."""
        self._check_open()
        self._put(Commit("beliefs", step, beliefs=self._checked(beliefs)))

    def command(
        self, kind: str, payload: Mapping[str, object] | None = None, step: int | None = None, who: str = ""
    ) -> None:
        """Record what the researcher did; step = the last finished step when it was done."""
        self._check_open()
        commit = Commit("note", self.step if step is None else step)
        row = {
            "step": [commit.step],
            "time": commit.time,
            "kind": kind,
            "payload": tables.to_json(payload or {}),
            "who": who,
        }
        commit.tables.append({"commands": row})
        self._put(commit)

    def event(self, event: Event, step: int | None = None, source: str = "session") -> None:
        """Record something worth telling that is not part of a step."""
        self._check_open()
        self._put(Commit("note", self.step if step is None else step, events=[(event, source)]))

    def flush(self) -> None:
        """Wait until all that was handed over is durable; raise what went wrong."""
        self._recorder.flush()
        self._raise()

    def retry(self) -> None:
        """After a write error: try again what is still in memory, and wait for it."""
        self._recorder.retry()
        self._raise()

    def close(self, status: str = "finished", message: str = "") -> None:
        """Write what is left and how the run ended (finished, stopped, failed); once more where writing had failed."""
        if self._closed:
            return
        if status not in ENDINGS:
            raise StoreError(f"a run ends as one of {', '.join(ENDINGS)}, not as {status!r}")
        if not self._closing:
            self._closing = True
            end = Commit("close", self.step)
            row = {
                "attempt": [self.attempt],
                "status": status,
                "time": end.time,
                "last_step": self.step,
                "message": message,
            }
            end.tables.append({"statuses": row})
            self._recorder.put(end)
        self._recorder.flush()
        if self._recorder.error is not None:
            self.retry()
        self._release()

    def give_up(self) -> None:
        """After a write error: let the run go without what could not be written, so that it can be resumed."""
        if not self._closed:
            self._release()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind, error, trace) -> None:
        if error is None:
            self.close()
        elif isinstance(error, KeyboardInterrupt):
            self.close("stopped")
        else:
            with contextlib.suppress(StoreError):
                self.close("failed", f"{type(error).__name__}: {error}")

    def __repr__(self) -> str:
        return f"Writer({self.run} in {self._backend.where}: step {self.step} handed over, {self.committed} durable)"

    def _evaluation_tables(self, step: int, rollouts: Rollouts) -> tables.Tables:
        if self.evaluation_pool is None:
            raise StoreError("this run has no evaluation pool; give Writer(..., evaluation=pool)")
        if step in self._evaluated:
            raise StoreError(f"the evaluation of step {step} was already recorded")
        seen = ledger.origins(step, rollouts, None, {})
        ledger.check_rows(f"evaluation of step {step}", rollouts, seen, self.evaluation_pool)
        if (rollouts.purpose != "eval").any():
            raise LedgerError(f"evaluation of step {step}: all rollouts must have the purpose 'eval'")
        made = tables.evaluation_tables(step, rollouts, seen, self.evaluation_pool)
        return self._retention.thin(made, step, rollouts, self.evaluation_pool.ids[rollouts.prompt])

    def _checked(self, beliefs: Beliefs) -> Beliefs:
        for method, columns in beliefs.items():
            for name, column in columns.items():
                if np.shape(column) != (len(self.pool),):
                    raise StoreError(f"belief {method}.{name} has shape {np.shape(column)}, not ({len(self.pool)},)")
        return beliefs

    def _put(self, commit: Commit) -> None:
        if not self._recorder.put(commit, waited=commit.waited):
            self._raise()

    def _check_open(self) -> None:
        if self._closing:
            raise StoreError(f"the writer of {self.run} is closed")
        self._raise()

    def _raise(self) -> None:
        error, waiting = self._recorder.error, self._recorder.waiting
        if error is not None:
            raise StoreError(
                f"step {waiting[0].step} of {self.run} could not be written to {self._backend.where}: {error}. All steps up to "
                f"{self.committed} are safe on disk and {len(waiting)} records wait in memory; {self._backend.remedy} and "
                + self._then.format(run=self.run)
            ) from error

    def _write(self, commit: Commit) -> None:
        key = {"run": self.run, "rank": self.rank, "seq": self._seq}
        rows = self._changes.rows(commit.beliefs, commit.observed)
        held = self._backend.commit(self._seq, commit.arrow(key, self.attempt, rows, self.pool))
        self._seq += 1
        self._changes.wrote(commit.beliefs, rows)
        if commit.kind == "step":
            self.committed = commit.step
        self._compactor.wrote(self._seq, held)

    def _not_compacted(self, error: Exception) -> None:
        event = Event("warning", "compaction", f"{type(error).__name__}: {error}; commits stay as they are")
        if not self._closing:
            self._recorder.put(Commit("note", self.step, events=[(event, "store")]))

    def _at_exit(self) -> None:
        with contextlib.suppress(Exception):
            self.flush()

    def _release(self) -> None:
        self._closing = self._closed = True
        self._recorder.stop()
        self._compactor.join()
        atexit.unregister(self._at_exit)
        self._backend.close()
