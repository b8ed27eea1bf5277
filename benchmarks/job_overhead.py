"""The whole job (a controller, a reader and a host) against training in one process: same batches, same two cores.

    python -m benchmarks.job_overhead [--globo FOLDER] [--hours 24] [--rounds 3] [--home FOLDER --model NAME --end TIME] [--quick]

Both sides are the command ``headrace train`` in a fresh process over memos of one model of Globo's log, or of the sample log
without it, with all options given. *Steps* are the seconds from the end of the first optimizer step, in which TensorFlow compiles, to the end of the last one;
*whole* is the time of the command, with imports, the start of the processes and the last commit; *CPU* is that of all its
processes. Sides alternate; the ratio is the median of those within the rounds. At the end all weights, slots and the history
of both must be equal bit for bit.

Target: the job is at most 10 % slower.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support.harness import machine
from benchmarks.support.training_scene import TrainingScene, add_options, make_scene
from trainer.job.launch.run_comparison import run_differences

CORES, TARGET = 2, 1.10
SIDES = {"one process": (), "the job": ("--hosts", "1", "--readers", "1")}


@dataclass(frozen=True, slots=True)
class Run:
    """The seconds of one run: of its steps, of the command, and of the CPU."""

    steps_secs: float
    whole_secs: float
    cpu_secs: float


def train(scene: TrainingScene, run_dir: Path, more: tuple[str, ...]) -> Run:
    """Train in a fresh run directory."""
    file = run_dir.with_suffix(".steps")
    command = [sys.executable, "-m", "benchmarks.support.timed_steps", str(file), *scene.command(run_dir, *more)]
    before, began = _children_secs(), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    whole = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(done.stderr)
    first, last, _ = map(float, file.read_text().split())
    return Run(last - first, whole, _children_secs() - before)


def _children_secs() -> float:
    """CPU seconds of ended descendants."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Measure; the exit status is 1 if a target is missed (never with ``--quick``)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="of the runs; default: a temporary one")
    given = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    print(f"{machine()}; {len(os.sched_getaffinity(0))} cores are used")
    rounds = 1 if given.quick else given.rounds
    with tempfile.TemporaryDirectory(prefix="headrace-overhead-", dir=given.folder) as name:
        folder = Path(name)
        scene = make_scene(folder, given)
        print(f"{scene.rows:,} events of {scene.model}, batches of 1024")
        found: dict[str, list[Run]] = {side: [] for side in SIDES}
        train(scene, folder / "warm-up", ())
        for number in range(rounds):
            # The side that begins changes, so that neither always meets a warm cache.
            for side in sorted(SIDES, reverse=bool(number % 2)):
                run_dir = folder / f"{side.replace(' ', '-')}-{number}"
                one = train(scene, run_dir, SIDES[side])
                found[side].append(one)
                print(f"round {number + 1}/{rounds}  {side:<12} steps {one.steps_secs:7.1f} s  whole {one.whole_secs:7.1f} s  "
                      f"CPU {one.cpu_secs:7.1f} s", flush=True)  # fmt: skip
        alone, job = found["one process"], found["the job"]
        ratios = {}
        for what in ("steps_secs", "whole_secs", "cpu_secs"):
            each = [getattr(b, what) / getattr(a, what) for a, b in zip(alone, job, strict=True)]
            ratios[what] = statistics.median(each)
            print(f"the job / one process, {what.removesuffix('_secs'):<6} {ratios[what]:.3f} ({min(each):.3f}..{max(each):.3f})"
                  + (f", target at most {TARGET:.2f}" if what == "steps_secs" else ""))  # fmt: skip
        differing = [text for number in range(rounds)
                     for text in run_differences(folder / f"one-process-{number}", folder / f"the-job-{number}")]  # fmt: skip
        print("weights, slots and history are equal bit for bit" if not differing else f"they differ: {differing[:8]}")
    met = ratios["steps_secs"] <= TARGET and not differing
    return 0 if met or (given.quick and not differing) else 1


if __name__ == "__main__":
    sys.exit(main())
