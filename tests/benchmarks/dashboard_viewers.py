"""Viewers without a browser, for `python -m tests.benchmarks dashboard`: dashboard_viewers URL N opens N sessions and takes what comes.

Each does what BokehJS does to a server (its token, the document, the word that the page is there), so that the server
works as for a browser, and throws away what it is sent. Ends when its input is closed.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable
from contextlib import suppress

from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

READY = {"type": "event", "name": "document_ready", "values": {"type": "map"}}


async def watch(url: str, opened: Callable[[], None] = lambda: None) -> int:
    """Open a session and read until the server closes it; the number of bytes that came."""
    page = (await AsyncHTTPClient().fetch(HTTPRequest(url, request_timeout=60))).body.decode()
    found = re.search(r'"token":\s*"([^"]+)"', page)
    if found is None:
        raise RuntimeError(f"no session token in the page at {url}")
    path, mark, query = re.sub("^http", "ws", url).partition("?")
    address = HTTPRequest(f"{path.rstrip('/')}/ws{mark}{query}", request_timeout=60)
    socket = await websocket_connect(address, subprotocols=["bokeh", found[1]], max_message_size=1 << 30)
    for _ in range(3):  # header, metadata, content of the server's ACK
        await socket.read_message()
    await _send(socket, "PULL-DOC-REQ", {})
    event = {"kind": "MessageSent", "msg_type": "bokeh_event", "msg_data": READY}
    await _send(socket, "PATCH-DOC", {"events": [event]})
    opened()
    taken = 0
    try:
        while (frame := await socket.read_message()) is not None:
            taken += len(frame)
        return taken
    finally:
        socket.close()


async def glance(url: str, seconds: float) -> None:
    """Open a session, watch for so long, and close it."""
    opened = asyncio.Event()
    viewer = asyncio.create_task(watch(url, opened.set))
    waiting = asyncio.create_task(opened.wait())
    await asyncio.wait((viewer, waiting), return_when=asyncio.FIRST_COMPLETED)
    await asyncio.sleep(seconds)
    viewer.cancel()
    with suppress(asyncio.CancelledError):
        await viewer


async def _send(socket: WebSocketClientConnection, kind: str, content: dict) -> None:
    for fragment in ({"msgid": f"{kind}-{id(content)}", "msgtype": kind}, {}, content):
        await socket.write_message(json.dumps(fragment))


async def _watch_all(url: str, n: int) -> None:
    viewers = [asyncio.create_task(watch(url, lambda: print("watching", flush=True))) for _ in range(n)]
    await asyncio.to_thread(sys.stdin.read)
    for viewer in viewers:
        viewer.cancel()


if __name__ == "__main__":
    asyncio.run(_watch_all(sys.argv[1], int(sys.argv[2])))
