"""`workbench dashboard`: watch the runs of a store, live or finished."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from tempfile import TemporaryDirectory


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register it."""
    parser = commands.add_parser("dashboard", help="watch the runs of a store")
    parser.add_argument(
        "store", nargs="?", default="store", help="folder or URL (default: %(default)s); - reads it from standard input"
    )
    parser.add_argument("--sample", action="store_true", help="small recorded runs that come with the tree; no model")
    parser.add_argument("--run", help="the run to show first (default: the newest)")
    parser.add_argument("--port", type=int, default=5006)
    parser.add_argument("--no-browser", action="store_true")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument(
        "--no-token",
        dest="token",
        action="store_false",
        help="let in whoever reaches the address: to steer on this machine, to look with another --host",
    )
    parser.set_defaults(command=_dashboard)


def _dashboard(args: argparse.Namespace) -> int:
    if args.sample:
        from workbench.store.sample import copy_sample

        with TemporaryDirectory(prefix="workbench-sample-") as copy:
            return _show(str(copy_sample(copy)), args)
    return _show(sys.stdin.readline().strip() if args.store == "-" else args.store, args)


def _show(store: str, args: argparse.Namespace) -> int:
    from workbench.store.urls import is_there, redacted
    from workbench.views.shell.ports import is_loopback
    from workbench.views.shell.server import serve

    if not is_there(store):
        raise FileNotFoundError(
            f"there is no store in {redacted(store)!r}; `workbench demo` makes one, `workbench dashboard --sample` shows recorded runs"
        )
    if hasattr(os, "nice"):
        os.nice(10)  # where cores are short, who watches waits and not who trains
    server, url = serve(
        store, args.run, port=args.port, open=not args.no_browser, threaded=False, host=args.host, token=args.token
    )
    ends = "" if args.store == "-" else "   (Ctrl-C ends it; runs go on)"
    print(f"dashboard of {redacted(store)}: {url}{ends}", flush=True)
    if args.token:
        print(f"that address opens once; another browser gets in by {server.entry.file}", flush=True)
    if not is_loopback(args.host):
        print("it is not encrypted: use a tunnel across a network that is not yours", flush=True)
    # as Ctrl-C does: so that the file of the token goes
    signal.signal(signal.SIGTERM, lambda *_: server.io_loop.add_callback_from_signal(server.io_loop.stop))
    server.io_loop.start()
    return 0
