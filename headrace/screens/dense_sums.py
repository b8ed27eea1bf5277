"""The line of a training screen about how hosts add dense gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.terminal.units import bytes_text, many

if TYPE_CHECKING:
    from trainer.planning.host_grid import SumFigures


def dense_sums_text(figures: SumFigures) -> str:
    """In which order hosts add, and what all of them send in a step."""
    rounded = ", rounded to bfloat16" if figures.rounded else ""
    far = bytes_text(figures.far_bytes)
    if figures.places == 1:
        return f"{far} a step between {many(figures.machines, 'host')}{rounded}"
    grid = f"{many(figures.machines, 'machine')} of {many(figures.places, 'host')}"
    between = f"{far} a step between {grid}{rounded}, {bytes_text(figures.near_bytes)} inside them"
    return f"in two legs: {between}" if figures.in_legs else f"without legs, the model is small: {between}"


def sum_order_text(order: str) -> str:
    """The order of sums as a commit names it, which is not empty: machines by hosts of each, and bf16 for rounded gradients."""
    grid = order.removesuffix("bf16").strip()
    texts = (f"in two legs, {grid} hosts" if grid else "", "rounded to bfloat16" if order.endswith("bf16") else "")
    return ", ".join(filter(None, texts))
