"""The reference as static HTML, made from the tree: `workbench docs -o FOLDER`. No network, no template language."""

from __future__ import annotations

from workbench.reference.site import build

__all__ = ["build"]
