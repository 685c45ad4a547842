"""The live page, to be copied and changed: `panel serve dashboards/live.py --args STORE [RUN]`.

Everything below is ordinary Panel. `Dashboard` builds all views and keeps them up to date; take its figures apart, add
your own card, ask the store your own question in SQL.
"""

import sys

import panel as pn

from workbench.views.data.text import html
from workbench.views.parts.layout import card, pane
from workbench.views.shell.dashboard import Dashboard
from workbench.views.shell.frame import PERIOD, shell

store = sys.argv[1] if len(sys.argv) > 1 else "store"
run = sys.argv[2] if len(sys.argv) > 2 else None

page = Dashboard(store, run, ["live"])

# a card of your own: a question to the store, drawn at each tick
longest = pane()
page.body.append(card(12, longest))


def mine() -> None:
    """Look at the store, then at what this page adds."""
    page.tick()
    if page.chosen.run:
        row = page.source.ask("reward_by_step", run=page.chosen.run).to_pylist()[-1:]
        length = row[0]["length"] if row else 0
        longest.object = f"<b>Mean length</b> of the last step's completions: {html(round(length or 0, 1))} tokens"


mine()
pn.state.onload(lambda: pn.state.add_periodic_callback(mine, period=PERIOD))
shell(page, "My dashboard").servable()
