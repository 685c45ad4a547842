"""A tab that goes away is not news; everything else is still logged."""

import logging
from types import SimpleNamespace

import pytest
from bokeh.server.connection import ServerConnection
from tornado.websocket import WebSocketClosedError

from workbench.views.shell.closed_tabs import LOGGERS, UNSENT, keep_quiet


def raised(act):
    try:
        act()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def without_session():
    """What Bokeh raises when a message of a closed tab is handled."""
    session = SimpleNamespace(subscribe=lambda _: None, unsubscribe=lambda _: None)
    connection = ServerConnection(None, None, None, session)
    connection.detach_session()
    return connection.session


def fail():
    raise WebSocketClosedError


def mistaken():
    raise AssertionError


@pytest.mark.parametrize("name", LOGGERS)
def test_only_closed_tabs_are_left_out(name, caplog):
    keep_quiet()
    log = logging.getLogger(name)
    for act in (without_session, fail, mistaken, lambda: 1 / 0):
        log.error("error handling message", exc_info=raised(act))
    log.warning(UNSENT)
    log.warning("Failed sending message")
    told = [r.exc_info[0].__name__ if r.exc_info else r.getMessage() for r in caplog.records]
    assert told == ["AssertionError", "ZeroDivisionError", "Failed sending message"]


def test_bokeh_and_panel_word_their_warning_so():
    import inspect

    from bokeh.server.views import ws
    from panel.io import document

    assert UNSENT in inspect.getsource(ws)
    assert f'logger.warning("{UNSENT}")' in inspect.getsource(document)
