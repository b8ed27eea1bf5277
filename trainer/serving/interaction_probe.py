"""How the features of a log interact, by two trainings of a DLRM for this purpose.

The network under test is no probe: cosines of the embeddings of a DCN say nothing about interaction, since its cross layers take embeddings of any
direction. The vectors of a DLRM interact by dot products alone, so those of features that interact get related directions. Two trainings
from different seeds say whether the log, and not a random start, has made them so.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from trainer.planning.towers.agreement import Agreement, agreement_of, mean_interactions
from trainer.planning.towers.interactions import Interactions
from trainer.run.choosing.choose import choose_config
from trainer.run.loop import TrainEvent, train
from trainer.run.reading.stream import ReadFragment
from trainer.serving.feature_interactions import sample_interactions
from trainer.serving.trained import load_trained
from warehouse.solution.solution import ReadSolution

#: A plain DLRM. Its rows begin with directions of their own, which small initial values would leave to the first few updates, and its batches are
#: small: so cosines of unrelated features stay at the floor, and two trainings agree (measured on planted logs: docs/towers.md).
_PROBE: Final[Mapping[str, Any]] = {
    "network": "dlrm", "deep": True, "linear": False, "passes": 1, "embedding_learning_rate": 0.1, "dense_learning_rate": 0.01,
    "embedding_optimizer": "adagrad", "embedding_initial_stddev": 0.1, "batch_rows": 256, "dense_optimizer": "adam", "staleness": 0, "calibration": "none", "held_out_share": 0.0,
    "keep_checkpoints": 1, "statistics_share": 0.0,
}  # fmt: skip
#: Options of the model that a probe has, too: those of what an activation is, and of which rows have memory.
_KEPT: Final = ("dim", "dims", "combiner", "combiners", "tables", "hashed", "pruning", "threads")
PROBES: Final = 2
#: A training has one of so many seeds.
_SEEDS: Final = 1 << 31


@dataclasses.dataclass(frozen=True, slots=True)
class Probed:
    """The mean interactions of two trainings, how far the two agree, and the events of each."""

    interactions: Interactions
    agreement: Agreement
    trained_events: int


def probe_interactions(
    solution: ReadSolution,
    read: ReadFragment,
    options: Mapping[str, Any],
    *,
    most_trained: int,
    most_sampled: int,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Probed:
    """Train two DLRMs on the newest partitions of ``solution`` and compare their activations. Deterministic by ``seed``.

    Args:
        options: training options of the model, of which the probes have widths, combiners and shared tables.
        most_trained: the events of each training; partitions are whole, so the oldest one may add more.
        most_sampled: the events whose activations are compared.
        progress: called with the events that are trained and those of both trainings.

    Raises the errors of :func:`~trainer.run.loop.train` and :func:`~trainer.serving.feature_interactions.sample_interactions`.
    """
    newest = newest_partitions(solution, most_trained)
    asked = {**{name: options[name] for name in _KEPT if name in options}, **_PROBE}
    found: list[Interactions] = []
    width = 1
    for probe in range(PROBES):

        def tell(event: TrainEvent, before: int = probe * newest.rows) -> None:
            if progress is not None and event.kind == "batch":
                progress(before + event.events, PROBES * newest.rows)

        with tempfile.TemporaryDirectory(prefix="headrace-probe-") as folder:
            run_dir = str(Path(folder) / "run")
            config = choose_config(newest, read, {**asked, "seed": (PROBES * seed + probe) % _SEEDS}, run_dir=run_dir)
            train(newest, read, config, progress=tell)
            found.append(sample_interactions(load_trained(run_dir), newest, read, most_sampled))
            width = config.dim
    one, other = found
    return Probed(mean_interactions(one, other), agreement_of(one, other, width=width), newest.rows)


def newest_partitions(solution: ReadSolution, events: int) -> ReadSolution:
    """The newest partitions that hold ``events`` events together, or all; at least one."""
    kept, rows = 0, 0
    for partition in reversed(solution.partitions):
        kept, rows = kept + 1, rows + partition.rows
        if rows >= events:
            break
    return dataclasses.replace(solution, partitions=solution.partitions[len(solution.partitions) - kept :])
