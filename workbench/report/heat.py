"""A heat map as SVG: the picture is a small PNG made here, so that 400 x 500 values cost some ten kilobytes."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from bokeh.palettes import Viridis256

from workbench.report.svg import QUIET, WIDTH, Box, number, text, ticks, wrap

UNKNOWN = 255
"""Value of a pixel that nothing is known of."""

PALETTE = bytes(int(c[i : i + 2], 16) for c in Viridis256[:255] for i in (1, 3, 5)) + bytes((222, 225, 229))


def heatmap(values: np.ndarray, label: str, *, steps: tuple[float, float], rows: int, value: str, y_label: str) -> str:
    """values (P, C) in [0, 1] or NaN, bottom row first, over steps (from, to) and `rows` prompts; value: what it means."""
    grid = (
        np.where(np.isfinite(values), np.clip(np.nan_to_num(values), 0, 1) * 254, UNKNOWN)
        .round()
        .astype(np.uint8)[::-1]
    )
    height = float(np.clip(2.2 * len(grid), 190, 340))
    box = Box(46, WIDTH - 96, 10, 10 + height, steps, (0.0, float(rows)))
    w, h = box.right - box.left, box.bottom - box.top
    picture = base64.b64encode(png(grid)).decode()
    out = [
        f'<svg x="{box.left:g}" y="{box.top:g}" width="{w:g}" height="{h:g}" viewBox="{box.left:g} {box.top:g} {w:g} {h:g}">'
        f'<g class="zoom" data-panel="0"><image x="{box.left:g}" y="{box.top:g}" width="{w:g}" height="{h:g}" preserveAspectRatio="none" '
        f'style="image-rendering:pixelated" href="data:image/png;base64,{picture}"/></g></svg>'
    ]
    marks = "".join(
        text(float(box.at_x(x)), box.bottom + 16, number(float(x)), anchor="middle") for x in ticks(*steps, n=8)
    )
    out.append(f'<g class="x-ticks" data-panel="0">{marks}</g>')
    for y in ticks(0, rows, n=4):
        out.append(text(box.left - 6, float(box.at_y(y)) + 4, number(float(y)), anchor="end"))
    turned = f' transform="rotate(-90 8 {(box.top + box.bottom) / 2:.1f})"'
    out.append(text(8, (box.top + box.bottom) / 2 + 4, y_label, anchor="middle", more=turned))
    out.append(text((box.left + box.right) / 2, box.bottom + 33, "training step", anchor="middle"))
    out.append(_scale(box, value))
    shape = {
        "rows": grid.shape[0],
        "columns": grid.shape[1],
        "grid": base64.b64encode(grid.tobytes()).decode(),
        "value": value,
    }
    data = [{"box": [box.left, box.right, box.top, box.bottom], "x": steps, "y": box.y, "percent": True,
             "label": "training step", "bar": 0, "series": [], "heat": shape}]  # fmt: skip
    return wrap("".join(out), WIDTH, box.bottom + 42, label, data)


def _scale(box: Box, value: str) -> str:
    """The colour bar at the right."""
    x, top, height = box.right + 18, box.top, box.bottom - box.top
    bar = base64.b64encode(png(np.arange(254, -1, -1, dtype=np.uint8)[:, None])).decode()
    out = (f'<image x="{x:g}" y="{top:g}" width="14" height="{height:g}" preserveAspectRatio="none" '
           f'href="data:image/png;base64,{bar}"/>')  # fmt: skip
    for share in (0, 0.5, 1):
        out += text(
            x + 20, top + height * (1 - share) + (4 if share == 0.5 else 10 if share else 0), f"{100 * share:.0f} %"
        )
    middle = top + height / 2
    return out + text(
        x + 66, middle, value, color=QUIET, anchor="middle", more=f' transform="rotate(90 {x + 62:.1f} {middle:.1f})"'
    )


def png(pixels: np.ndarray) -> bytes:
    """A PNG file of (H, W) uint8 places in the palette."""
    height, width = pixels.shape

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = np.hstack([np.zeros((height, 1), np.uint8), pixels]).tobytes()  # filter 0 before every line
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"PLTE", PALETTE) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")
    )  # fmt: skip
