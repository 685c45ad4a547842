"""The signs page alone, where two estimators disagree: `panel serve dashboards/signs.py --args STORE [RUN]`. Look only; `workbench dashboard` steers."""

import sys

from workbench.views.shell.frame import app

store, run = [*sys.argv[1:], "store"][0], [*sys.argv[2:], None][0]
app(store, run, ["signs"]).servable()
