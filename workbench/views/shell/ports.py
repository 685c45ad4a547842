"""Ports and host names of the dashboard's server, known without loading what draws it."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress

HOST = "127.0.0.1"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name: it may lead anywhere
        return False


def names_of(host: str) -> list[str]:
    """The hosts under which a browser may ask for a server on an address: its own, or all of this machine."""
    if is_loopback(host):
        return [host, "localhost", HOST]
    if host not in ("0.0.0.0", "::"):
        return [host]
    names = [socket.gethostname(), socket.getfqdn(), "localhost", HOST]
    with suppress(OSError):
        names += [str(found[4][0]) for found in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    return list(dict.fromkeys(names))


def free_port(port: int = 0, tries: int = 50, host: str = HOST) -> int:
    """The port, or the next one that is free; 0 takes any. Raises OSError where none of `tries` is."""
    for candidate in [0] if port == 0 else range(port, port + tries):
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind((host, candidate))
            except OSError:
                continue
            return s.getsockname()[1]
    raise OSError(f"no free port among {port} to {port + tries - 1} on {host}; name another with port=")
