"""Training with each commit evaluated on a fixed range, against the same training without: steps a second.

    python -m benchmarks.commit_evaluation [--globo FOLDER] [--hours 24] [--rounds 3] [--epochs 6] [--passes 1] [--hosts N] [--home FOLDER --model NAME] [--quick]

Both sides are the command ``headrace train`` in a fresh process on all cores, over memos of one model, with ``--test-end``; one of them also has
``--evaluate-commits``, whose process of low priority scores the newest tenth of the partitions with each commit that it finds. Rates are of the steps after
the first one, in which TensorFlow compiles, up to the last one. Sides alternate; the ratio is the median of those within the rounds. The test figures of
both must be equal.

Target: at most 3 % fewer steps a second.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.many_models import LOAD_ALL
from benchmarks.support.harness import machine
from benchmarks.support.training_scene import TrainingScene, add_options, make_scene
from warehouse import Warehouse, WarehouseConfig, read_solution

TARGET = 0.97


@dataclass(frozen=True, slots=True)
class Run:
    """Steps a second of one run, and its screen as JSON."""

    rate: float
    screen: dict[str, Any]


def train(scene: TrainingScene, run_dir: Path, *more: str) -> Run:
    """Train in a fresh run directory."""
    file = run_dir.with_suffix(".steps")
    command = [
        sys.executable,
        "-m",
        "benchmarks.support.timed_steps",
        str(file),
        *scene.command(run_dir, *more, "--json"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"status {done.returncode}: {done.stderr or done.stdout}")
    first, last, steps = map(float, file.read_text().split())
    return Run((steps - 1) / (last - first), json.loads(done.stdout))


def main() -> int:
    """Measure and print; the exit status is 1 if the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=6, help="commits of a pass")
    parser.add_argument("--passes", type=int, default=1)
    parser.add_argument("--hosts", type=int, default=0)
    given = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scene = make_scene(folder, given, held_out_share=0.0)
        with Warehouse.open(WarehouseConfig(str(scene.home), rates=LOAD_ALL)) as warehouse:
            solution = read_solution(warehouse, scene.model)
        tested = max(len(solution.partitions) // 10, 1)
        held = solution.partitions[-tested:]
        options = {
            **json.loads(scene.options.read_text()),
            "events_per_epoch": max(scene.rows // given.epochs, 1),
            "passes": given.passes,
        }
        scene.options.write_text(json.dumps(options))
        ranges = ("--end", held[0].start.isoformat(), "--test-end", held[-1].end.isoformat())
        more = (*ranges, *(("--hosts", str(given.hosts), "--readers", "1") if given.hosts else ()))
        ratios, differ, last = [], False, None
        for number in range(given.rounds):
            pair = {}
            for side in ("without", "with") if number % 2 else ("with", "without"):
                own = ("--evaluate-commits",) if side == "with" else ()
                pair[side] = train(scene, folder / f"{side}-{number}", *more, *own)
            ratios.append(pair["with"].rate / pair["without"].rate)
            differ |= pair["with"].screen["test"] != pair["without"].screen["test"]
            last = pair["with"].screen
            print(f"  round {number + 1}: {pair['without'].rate:.1f} steps/s without, {pair['with'].rate:.1f} with: {ratios[-1]:.3f}", flush=True)  # fmt: skip
    assert last is not None
    ratio = statistics.median(ratios)
    print(f"{last['events_this_time']:,} events in {len(last['epochs'])} epochs, {last['test']['events']:,} events tested; "
          f"{len(last['evaluations'])} commits evaluated: {ratio:.3f} of the steps a second (target {TARGET}); "
          f"test figures {'different' if differ else 'equal'}")  # fmt: skip
    return int(ratio < TARGET or differ)


if __name__ == "__main__":
    sys.exit(main())
