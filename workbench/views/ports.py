"""The address of the page, known without loading what draws it."""

from __future__ import annotations

import socket

HOST = "127.0.0.1"


def free_port(port: int = 0, tries: int = 50) -> int:
    """The port, or the next one that is free; 0 takes any. Raises OSError where none of `tries` is."""
    for candidate in [0] if port == 0 else range(port, port + tries):
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind((HOST, candidate))
            except OSError:
                continue
            return s.getsockname()[1]
    raise OSError(f"no free port among {port} to {port + tries - 1} on {HOST}; name another with port=")
