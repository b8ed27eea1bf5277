"""The quality of training with bounded staleness: a log trained with several bounds and the same seeds."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.support.quality_logs import QualityLog
from benchmarks.support.quality_scene import quality_scene
from trainer.run.choosing.choose import choose_config
from trainer.run.loop import train
from trainer.serving.trained import load_trained


def measure_quality(log: QualityLog, seeds: int, bounds: Sequence[int]) -> dict[int, list[float]]:
    """The AUC on the newest partitions of each seed, by the updates that each lookup misses.

    Tables are in the ``cpu`` engine: one client of parameter servers has the same bits.
    """
    found: dict[int, list[float]] = {bound: [] for bound in bounds}
    with tempfile.TemporaryDirectory() as folder, quality_scene(log, Path(folder)) as scene:
        given = {"network": "dlrm", "deep": True}
        config = choose_config(scene.older, scene.read(scene.older), given, run_dir=str(Path(folder) / "chosen"))
        for seed in range(seeds):
            for bound, aucs in found.items():
                run_dir = str(Path(folder) / f"{bound}-{seed}")
                one = replace(config, run_dir=run_dir, seed=seed, staleness=bound)
                train(scene.older, scene.read(scene.older), one)
                aucs.append(load_trained(run_dir).evaluate(scene.newer, scene.read(scene.newer)).auc)
            print(f"  {log.name} seed {seed}: " + ", ".join(f"{bound}: {aucs[-1]:.4f}" for bound, aucs in found.items()), flush=True)  # fmt: skip
    return found


def describe(log: str, found: dict[int, list[float]], target: float) -> str:
    """A line for each bound: its mean AUC, and the mean difference from no staleness with its standard deviation."""
    lines = []
    serial = found[0]
    for bound, aucs in found.items():
        if not bound:
            lines.append(f"  {log}: sync AUC {statistics.mean(aucs):.4f} ± {statistics.stdev(aucs):.4f}")
            continue
        differences = [b - a for a, b in zip(serial, aucs, strict=True)]
        relative = abs(statistics.mean(differences)) / statistics.mean(serial)
        lines.append(f"  {log}: staleness {bound} AUC {statistics.mean(aucs):.4f} ± {statistics.stdev(aucs):.4f}, "
                     f"difference {statistics.mean(differences):+.5f} ± {statistics.stdev(differences):.5f}, {relative:.2%} "
                     f"(target {target:.1%}: {'met' if relative <= target else 'missed'})")  # fmt: skip
    return "\n".join(lines)
