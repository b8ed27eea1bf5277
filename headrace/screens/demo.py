"""The screen of ``headrace demo``: the results, and commands to try next."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType

from headrace.screens.shown import Shown
from headrace.terminal.grid import facts
from headrace.terminal.units import bytes_text, count_text, percent_text, secs_text

if TYPE_CHECKING:
    from headrace.demo.play import Outcome


@dataclass(frozen=True, slots=True, repr=False)
class DemoScreen(Shown):
    """The results of one demo, as its commands reported them."""

    model: str
    home: str
    requests: int
    computed: int
    hit_rate: float | None
    saved_bytes: int
    saved_secs: float
    killed_after_epoch: int
    epochs: int
    events_counted: int
    exactly_once: bool
    test_events: int
    auc: float | None
    log_loss: float | None
    normalized_entropy: float | None
    baselines: dict[str, float | None]
    secs: float

    def render(self) -> RenderableType:
        """Results, then commands."""
        sharing = (
            f"hit rate {percent_text(self.hit_rate)}: {count_text(self.requests)} requests of three models cost "
            f"{count_text(self.computed)} computations"
        )
        crash = (
            f"killed with SIGKILL after epoch {self.killed_after_epoch} of {self.epochs}, resumed: "
            f"{count_text(self.events_counted)} events, each "
            f"{'exactly once' if self.exactly_once else 'NOT exactly once'} (counted)"
        )
        quality = (
            f"AUC {_number(self.auc)}, log loss {_number(self.log_loss)}, normalized entropy "
            f"{_number(self.normalized_entropy)} on the {count_text(self.test_events)} events that follow"
        )
        pairs = [
            ("sharing", sharing),
            ("saved", f"{bytes_text(self.saved_bytes)} of memos and {secs_text(self.saved_secs)} of computing"),
            ("training", crash),
            ("quality", quality),
        ]
        pairs += [("baseline", f"{column} alone: AUC {_number(auc)}") for column, auc in self.baselines.items()]
        pairs.append(("time", secs_text(self.secs)))
        here = os.path.relpath(self.home)
        steps = (
            f"export HEADRACE_HOME={here} PATH=$PWD/.venv/bin:$PATH",
            "headrace status",
            f"headrace model explain {self.model} --partitions",
            "headrace graphs ls",
            "headrace graphs search --operator intersect",
            f"headrace model show {self.model} --json",
            "headrace ui  # pages in a browser: search the graphs, open one, preview an eviction",
        )
        return Group("", facts(pairs, title="Results"), "", "What to try next:", *(f"  {step}" for step in steps))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def demo_screen(model: str, home: Path, outcome: Outcome) -> DemoScreen:
    """The screen of a demo's outcome."""
    status, trained = outcome.status, outcome.trained
    test: dict[str, Any] = trained["test"]
    return DemoScreen(
        model=model,
        home=str(home),
        requests=status["requests"],
        computed=status["computed"],
        hit_rate=status["hit_rate"],
        saved_bytes=status["saved_bytes"],
        saved_secs=status["saved_secs"],
        killed_after_epoch=outcome.killed_after_epoch,
        epochs=len(trained["epochs"]),
        events_counted=trained["counted"],
        exactly_once=trained["exact"] and trained["passes"] == 1,
        test_events=test["events"],
        auc=test["auc"],
        log_loss=test["log_loss"],
        normalized_entropy=test["normalized_entropy"],
        baselines=trained["baselines"],
        secs=outcome.secs,
    )
