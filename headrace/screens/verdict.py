"""Parts of the screen of ``headrace train``: the trial that chose the options, and the verdict on the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType

from headrace.terminal.grid import grid

if TYPE_CHECKING:
    from trainer.options.trial_record import TrialRow
    from trainer.run.evaluation.verdict import Finding


def trial_table(trial: Sequence[TrialRow]) -> RenderableType:
    """Each candidate with its loss and bounds, as shares of the base rate's loss on the same events."""
    rows = [
        (
            f"{one.name} (chosen)" if one.is_chosen else one.name,
            str(one.passes),
            str(one.slices),
            f"{one.loss:.4f} ± {one.loss_error:.4f}",
            "" if one.is_chosen else f"{one.behind:+.4f} ± {one.behind_error:.4f}",
        )
        for one in trial
    ]
    return grid(
        ("candidate*", "passes>", "slices>", "loss/base rate>", "above the chosen>"),
        rows,
        title="Trial of candidates, validated on slices of time after their training; one far behind has fewer slices",
    )


def verdict_lines(findings: Sequence[Finding]) -> Iterator[tuple[str, str]]:
    """Pairs of a heading and a sentence: findings that need an action begin with a mark, and name it."""
    for k, one in enumerate(findings):
        label = f"{one.label}: " if one.label else ""
        action = "" if one.is_good else f"; next: {one.next_step}"
        yield ("" if k else "verdict"), f"{'' if one.is_good else '! '}{label}{one.text}{action}"
