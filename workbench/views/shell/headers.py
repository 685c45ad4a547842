"""Headers of everything that is served: what a page may load and run, who may frame it, what is told to other sites."""

from __future__ import annotations

import re
import secrets

from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.web import OutputTransform

_SCRIPT = re.compile(rb"<script(?=[\s>])")

_POLICY = (
    "default-src 'none'",
    # modules of Panel's components are blobs; Bokeh evaluates the text of its CustomJS models, which come from the server
    "script-src 'self' blob: 'unsafe-eval' 'nonce-{nonce}'",
    "style-src 'self' 'unsafe-inline'",  # Bokeh writes style sheets into the shadow roots of its views
    "img-src 'self' data: blob:",
    "font-src 'self' data:",
    "connect-src 'self' blob:",
    "base-uri 'none'",
    "form-action 'none'",
)


class Headers(OutputTransform):
    """Adds them to a response; scripts in a page as it leaves the server get its nonce, so that no other text of it is run.

    framed: whether other sites may show it in a frame, as a notebook does."""

    framed = False

    def __init__(self, request: HTTPServerRequest) -> None:
        self.request = request

    def transform_first_chunk(
        self, status_code: int, headers: HTTPHeaders, chunk: bytes, finishing: bool
    ) -> tuple[int, HTTPHeaders, bytes]:
        """The response with its headers."""
        nonce = secrets.token_urlsafe(18)
        if headers.get("Content-Type", "").startswith("text/html"):
            chunk = _SCRIPT.sub(f"<script nonce={nonce}".encode(), chunk)
            if finishing:
                headers["Content-Length"] = str(len(chunk))
        policy = [part.format(nonce=nonce) for part in _POLICY]
        if not self.framed:
            policy.append("frame-ancestors 'none'")
            headers["X-Frame-Options"] = "DENY"
        headers["Content-Security-Policy"] = "; ".join(policy)
        headers["X-Content-Type-Options"] = "nosniff"
        headers["Referrer-Policy"] = "no-referrer"
        headers["Cross-Origin-Resource-Policy"] = "cross-origin" if self.framed else "same-origin"
        return status_code, headers, chunk


class FramedHeaders(Headers):
    """Those of a dashboard in a notebook's cell, whose address nobody else knows."""

    framed = True
