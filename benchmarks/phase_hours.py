"""Time of all processes of a run that trains a history and then what lands: one setup for both, and phases with a setup for each.

    python -m benchmarks.phase_hours [--hours 120] [--partitions 6] [--globo FOLDER] [--quick]

``headrace train`` trains the first hours of Globo's news log, else of the sample log. Then further hours land one after the other, and the
command is called again for each. *Two hosts* and *one process* train everything with one setup; *phases* is one run file: two hosts with late
updates until they have caught up, then one process. The time of all processes is that of each command by its processes, start included, which
is what a cluster would bill. The loss is the progressive log loss of the hours that landed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.event_to_served import make_landing
from benchmarks.many_models import GLOBO
from benchmarks.support.harness import machine
from benchmarks.support.training_scene import OPTIONS
from trainer.run.weights.saved_run import read_newest_run
from warehouse import Warehouse, WarehouseConfig, register_table

_SETUPS = {
    "two hosts": "hosts = 2\n",
    "one process": "",
    "phases": "catch-up-secs = 3600\n[initial]\nhosts = 2\noptions.staleness = 2\n[caught_up]\noptions.staleness = 0\n",
}
_HOSTS = {"two hosts": 2, "one process": 1}


@dataclass(frozen=True, slots=True)
class Cost:
    """The time of commands: as a clock has it, and of all processes."""

    secs: float
    process_secs: float

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.secs + other.secs, self.process_secs + other.process_secs)


def train(setup: str, run_file: Path, before: float) -> tuple[Cost, float]:
    """Call the command once.

    Args:
        before: the time of all processes of a run with phases so far.

    Returns:
        The cost of this call, and the time of all processes of a run with phases with it.
    """
    began = time.monotonic()
    command = [sys.executable, "-m", "headrace", "train", "--from", str(run_file), "--json"]
    done = subprocess.run(command, capture_output=True, check=False)
    secs = time.monotonic() - began
    if done.returncode:
        raise SystemExit(done.stderr.decode()[-4000:])
    if setup in _HOSTS:
        return Cost(secs, _HOSTS[setup] * secs), before
    found: Mapping[str, Any] = json.loads(done.stdout)
    after = sum(float(one["host_secs"]) for one in found["phases"])
    return Cost(secs, after - before), after


def costs_of(setup: str, folder: Path, given: argparse.Namespace) -> tuple[Cost, Cost, float]:
    """What the history costs, what the landed hours cost together, and the log loss of these."""
    home = folder / "home"
    landing = make_landing(folder, home, given)
    lines = [f'model = "{landing.model}"', f'home = "{home}"', f'run-dir = "{folder / "run"}"', "[options]"]
    lines += [f"{name} = {json.dumps(value)}" for name, value in OPTIONS.items()]
    head, rest = _SETUPS[setup].split("[", 1) if "[" in _SETUPS[setup] else (_SETUPS[setup], "")
    text = "\n".join([*lines[:3], head + lines[3], *lines[4:]]) + "\n" + (f"[{rest}" if rest else "")
    run_file = folder / "train.toml"
    run_file.write_text(text)
    history, so_far = train(setup, run_file, 0.0)
    saved = read_newest_run(folder / "run", on_skip=print, weights=False)
    assert saved is not None
    epochs, landed = len(saved.progress.history), Cost(0.0, 0.0)
    with Warehouse.open(WarehouseConfig(str(home))) as warehouse:
        for aside, place in landing.waiting:
            place.parent.mkdir(parents=True, exist_ok=True)
            os.rename(aside, place)
            register_table(warehouse, landing.table, str(landing.root))
            cost, so_far = train(setup, run_file, so_far)
            landed += cost
    saved = read_newest_run(folder / "run", on_skip=print, weights=False)
    assert saved is not None
    scores = [one.scores for one in saved.progress.history[epochs:]]
    events = sum(one.events for one in scores)
    return history, landed, sum(one.events * float(one.log_loss or 0.0) for one in scores) / max(events, 1)


def main() -> None:
    """Print the costs of each setup."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=int, default=120, help="hours of the history")
    parser.add_argument("--partitions", type=int, default=6, help="hours that land")
    parser.add_argument("--globo", type=Path, default=GLOBO)
    parser.add_argument("--quick", action="store_true", help="a small log")
    parser.add_argument("--setups", nargs="+", choices=_SETUPS, default=list(_SETUPS))
    given = parser.parse_args()
    print(machine())
    print(f"{given.hours} hours, then {given.partitions} that land; seconds of a clock, and of all processes")
    print(f"{'':<13}{'history':>19}{'landed hours':>19}{'together':>19}{'of last':>11}{'loss':>10}")
    print(f"{'':<13}{'clock':>9}{'all':>10}" + f"{'clock':>9}{'all':>10}" * 2)
    found = {}
    for setup in given.setups:
        with tempfile.TemporaryDirectory(prefix="headrace-phases-") as name:
            found[setup] = costs_of(setup, Path(name), given)
    last = (found[given.setups[-1]][0] + found[given.setups[-1]][1]).process_secs
    for setup, (history, landed, loss) in found.items():
        together = history + landed
        line = "".join(f"{one.secs:>9.1f}{one.process_secs:>10.1f}" for one in (history, landed, together))
        print(f"{setup:<13}{line}{together.process_secs / last:>10.2f}x{loss:>10.5f}")


if __name__ == "__main__":
    main()
