"""Log filter for closed browser tabs: what was on its way to one is no news, so nothing is logged.

Bokeh lets a session go when its socket closes. What the tab still said then finds a connection without a session, and
what is still sent to it a closed socket; each is logged as a traceback or a warning, into the terminal or the cell.
"""

from __future__ import annotations

import logging
from types import TracebackType

from tornado.websocket import WebSocketClosedError

LOGGERS = (
    "asyncio", "tornado.application", "bokeh.server.protocol_handler", "bokeh.server.views.ws", "panel.io.document"
)  # fmt: skip
"""Who complains."""

UNSENT = "Failed sending message as connection was closed"
"""Bokeh's and Panel's warning of a message that came too late."""


class ClosedTabs(logging.Filter):
    """Lets everything through but the complaints about a closed tab."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is of something else."""
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return record.msg != UNSENT
        return not (isinstance(error, WebSocketClosedError) or _without_session(error))


_filter = ClosedTabs()


def keep_quiet() -> None:
    """Filter the loggers of this process; done twice it is done once."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_filter)


def _without_session(error: BaseException) -> bool:
    """Whether it is the assertion of Bokeh's `ServerConnection.session`: the connection has none any more."""
    if not isinstance(error, AssertionError) or error.__traceback__ is None:
        return False
    frame = _innermost(error.__traceback__).tb_frame
    return frame.f_code.co_name == "session" and frame.f_globals.get("__name__") == "bokeh.server.connection"


def _innermost(trace: TracebackType) -> TracebackType:
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace
