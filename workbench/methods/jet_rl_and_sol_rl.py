"""The functions of low-precision rollouts under one name: formats, mismatch, contrastive choice, cost."""

from workbench.numerics.precision import (
    block_fake_quant,
    contrast_select,
    mismatch_metrics,
    quantize_e2m1,
    quantize_e4m3,
    rank_fidelity,
    stage_cost,
    tis_weights,
)

__all__ = [
    "block_fake_quant",
    "contrast_select",
    "mismatch_metrics",
    "quantize_e2m1",
    "quantize_e4m3",
    "rank_fidelity",
    "stage_cost",
    "tis_weights",
]
