"""PDF and PNG by Chromium: pages to PDF, figures to PNG and to vector PDF. Nothing else here needs a browser."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
FLAGS = (
    "--headless", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-extensions", "--disable-background-networking",
    "--disable-component-update", "--host-resolver-rules=MAP * ~NOTFOUND", "--no-proxy-server",
)  # fmt: skip
SECONDS = 120


class NoBrowser(OSError):
    """There is no Chromium to print with."""


def find() -> str:
    """The browser's path; raises NoBrowser with what to do."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    raise NoBrowser(
        f"PDF and PNG are printed by Chromium, and none of {', '.join(NAMES)} is on the PATH. Install it (Debian: apt install "
        "chromium), or write report.html and print that from any browser"
    )


def print_pdf(page: str, out: Path) -> None:
    """A page as PDF, its own paper size and margins."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "page.html"
        source.write_text(page, encoding="utf-8")
        how = ("--no-pdf-header-footer", "--virtual-time-budget=5000", f"--print-to-pdf={out.resolve()}")
        _run(folder, out, *how, source.as_uri())


def figure_png(svg: str, out: Path, scale: int = 2) -> None:
    """A figure as a picture, `scale` pixels to a unit."""
    width, height = size(svg)
    with tempfile.TemporaryDirectory() as folder:
        source = _figure(svg, Path(folder))
        window = (f"--window-size={width},{height}", f"--force-device-scale-factor={scale}")
        _run(folder, out, *window, f"--screenshot={out.resolve()}", source.as_uri())


def figure_pdf(svg: str, out: Path) -> None:
    """A figure as a PDF of its own size, vectors kept."""
    with tempfile.TemporaryDirectory() as folder:
        source = _figure(svg, Path(folder))
        _run(folder, out, "--no-pdf-header-footer", f"--print-to-pdf={out.resolve()}", source.as_uri())


def size(svg: str) -> tuple[int, int]:
    """Width and height of a figure in whole units."""
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert found is not None
    return round(float(found[1]) + 0.49), round(float(found[2]) + 0.49)


def _figure(svg: str, folder: Path) -> Path:
    width, height = size(svg)
    inner = svg.partition("?>\n")[2] if svg.startswith("<?xml") else svg
    style = f"@page{{size:{width}px {height}px;margin:0}}body{{margin:0}}svg{{display:block}}"
    source = folder / "figure.html"
    source.write_text(f'<!DOCTYPE html><meta charset="utf-8"><style>{style}</style>{inner}', encoding="utf-8")
    return source


def _run(folder: str, out: Path, *arguments: str) -> None:
    """Run the browser with a profile of its own; raises OSError with what it said where it wrote nothing."""
    before = out.stat().st_mtime_ns if out.exists() else -1
    as_root = hasattr(os, "geteuid") and os.geteuid() == 0
    root = ["--no-sandbox"] if as_root else []  # it refuses to run as root otherwise
    command = [find(), *FLAGS, *root, f"--user-data-dir={folder}/profile", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise OSError(f"Chromium did not print {out.name} within {SECONDS} s") from error
    if not out.exists() or out.stat().st_mtime_ns == before:
        raise OSError(f"Chromium wrote no {out.name}: {done.stderr.strip()[-300:]}")
