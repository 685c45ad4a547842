"""JSON over HTTP to a server that may be slow, restarting or gone: bounded retries, and errors that say which.

Connections are kept, one a thread. Only what can be asked twice is sent through here: a request that was answered by nobody
is sent again.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

AGAIN = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses that may be others a moment later."""

LONGEST_WAIT = 30.0


class ServerError(RuntimeError):
    """A server did not do what it was asked, for a reason that the message names."""


class Rejected(ServerError):
    """The server answered, and will answer the same again; status is HTTP's."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Client:
    """Calls to one server.

    timeout: seconds without a sign of life, where a call names no other. tries: times a call is made before it fails. wait: seconds before the second
    try, doubled for each further one. key_variable: the environment variable with the bearer token, "" for none.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 120.0,
        tries: int = 5,
        wait: float = 0.5,
        key_variable: str = "",
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no address of a server; expected http://host:port")
        self.url, self.timeout, self.tries, self.wait = url.rstrip("/"), timeout, tries, wait
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._host, self._port, self._base = parts.hostname, parts.port, parts.path.rstrip("/").removesuffix("/v1")
        self._headers = {"Content-Type": "application/json"}
        if key_variable:
            if key_variable not in os.environ:
                raise ValueError(f"the environment has no {key_variable}, which was to hold the server's key")
            self._headers["Authorization"] = f"Bearer {os.environ[key_variable]}"
        self._sleep, self._local = sleep, threading.local()
        self._open: set[http.client.HTTPConnection] = set()
        self._hung_up = threading.Event()
        self._lock = threading.Lock()

    def call(self, method: str, path: str, body: object = None, *, timeout: float | None = None) -> object:
        """The server's answer, None where it is empty. Raises Rejected, or ServerError after the last try."""
        data, limit = None if body is None else json.dumps(body), self.timeout if timeout is None else timeout
        for attempt in range(1, self.tries + 1):
            try:
                status, text = self._once(method, path, data, limit)
                if status < 400:
                    return json.loads(text) if text.strip() else None
                reason = f"answered {status}: {_message(text)}"
                if status not in AGAIN:
                    raise Rejected(f"{self.url}{path} {reason}", status)
            except TimeoutError:
                reason = f"gave no sign of life for {limit:g} s"
            except json.JSONDecodeError as error:
                reason = f"answered something that is no JSON ({error})"
            except (OSError, http.client.HTTPException) as error:
                reason = f"is not there or broke off ({type(error).__name__}: {error})"
            if self._hung_up.is_set():
                raise ServerError(f"{self.url}{path} was broken off")
            if attempt < self.tries:
                self._sleep(min(self.wait * 2 ** (attempt - 1), LONGEST_WAIT))
        raise ServerError(f"{self.url}{path} {reason}, {self.tries} times in a row")

    def _once(self, method: str, path: str, data: str | None, timeout: float) -> tuple[int, str]:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._kind(self._host, self._port, timeout=timeout)
        with self._lock:
            self._open.add(connection)
        connection.timeout = timeout  # of a socket that is still to be opened
        if connection.sock is not None:
            connection.sock.settimeout(timeout)
        try:
            connection.request(method, self._base + path, data, self._headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode("utf-8", "replace")
        except BaseException:
            self._drop(connection)
            raise

    def _drop(self, connection: http.client.HTTPConnection) -> None:
        connection.close()
        with self._lock:
            self._open.discard(connection)
        if getattr(self._local, "connection", None) is connection:
            self._local.connection = None

    def hang_up(self) -> None:
        """Break off all calls, also those that other threads wait on; they raise ServerError until `listen`."""
        self._hung_up.set()
        with self._lock:
            for connection in self._open:
                if connection.sock is not None:
                    with suppress(OSError):  # it may have ended by itself
                        connection.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close all connections; nobody may be waiting. A later call opens its own again."""
        with self._lock:
            for connection in self._open:
                connection.close()  # it opens again where its thread asks once more
            self._open.clear()

    def listen(self) -> None:
        """Make calls again after `hang_up`."""
        self._hung_up.clear()


def _message(text: str) -> str:
    """What an error's body says, in one line."""
    try:
        answer = json.loads(text)
    except json.JSONDecodeError:
        return " ".join(text.split())[:300]
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    message = error.get("message", error.get("detail", error)) if isinstance(error, dict) else error
    return " ".join(str(message).split())[:300]
