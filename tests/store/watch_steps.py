"""A reader process for the tests: watch_steps.py URL; looks until its input ends, then prints what it saw as JSON.

torn: looks at which a step was there in part, of all its tables; looks: how many; last: run -> last step."""

import json
import sys
import threading

from workbench.store import Store

TORN = """
WITH there AS (
    SELECT run, step, n_rollouts, (SELECT count(*) FROM completions c WHERE c.run = s.run AND c.step = s.step) AS texts,
        (SELECT count(*) FROM rollouts r WHERE r.run = s.run AND r.step = s.step) AS rollouts,
        (SELECT count(*) FROM fates f WHERE f.run = s.run AND f.step = s.step) AS fates,
        (SELECT count(*) FROM timings t WHERE t.run = s.run AND t.step = s.step) AS timings,
        (SELECT count(*) FROM beliefs b WHERE b.run = s.run AND b.step = s.step) > 0 AS believed
    FROM steps s
)
SELECT run, max(step) AS last, count(*) <> max(step) OR count(*) FILTER (texts <> n_rollouts OR rollouts <> n_rollouts
    OR fates <> n_rollouts OR timings <> 2 OR NOT believed) > 0 AS torn
FROM there GROUP BY run
"""

if __name__ == "__main__":
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    looks = torn = 0
    last: dict[str, int] = {}
    with Store.open(sys.argv[1], live=False) as store:
        print("open", flush=True)
        while not over.is_set():
            store.refresh()
            for row in store.sql(TORN).to_pylist():
                torn += row["torn"] or row["last"] < last.get(row["run"], 0)
                last[row["run"]] = row["last"]
            looks += 1
    print(json.dumps({"looks": looks, "torn": torn, "last": last}))
