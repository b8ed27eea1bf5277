"""The set-up of a training job by its number of hosts: each host imports TensorFlow and traces its own step, or waits for no other to do so.

    python -m benchmarks.job_setup [--globo FOLDER] [--hours 24] [--hosts 1 2 4 8] [--rounds 3] [--quick]

A job trains few steps, so that nearly all of its time is set-up: imports, the plan of the epoch, the first step that TensorFlow traces, one commit, the
end. Printed are the processor seconds of a host process (the median of all hosts of all rounds, and the largest), those of the controller, and the time of the whole
command. Hosts on machines of their own set up at the same time, so a host's processor seconds are what the number of hosts may raise; the time of
the command is that of hosts that share the cores of this machine.

Target: with 8 hosts a host takes at most 1.2 times the processor seconds of one.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.support.harness import machine
from benchmarks.support.training_scene import TrainingScene, add_options, make_scene

TARGET = 1.2


def set_up(scene: TrainingScene, run_dir: Path, hosts: int) -> tuple[dict[str, list[float]], float]:
    """The processor seconds of the processes of each role, and the seconds of the command."""
    file = run_dir.with_suffix(".roles")
    command = [sys.executable, "-m", "benchmarks.support.timed_setup", str(file), *scene.command(run_dir, "--hosts", str(hosts), "--readers", "1")]  # fmt: skip
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    whole = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, list[float]] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        role, secs = line.split()
        found.setdefault(role, []).append(float(secs))
    return found, whole


def main() -> int:
    """Measure; the exit status is 1 if the target is missed (never with ``--quick``)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    print(machine())
    of_hosts: dict[int, list[float]] = {hosts: [] for hosts in given.hosts}
    controllers: dict[int, list[float]] = {hosts: [] for hosts in given.hosts}
    commands: dict[int, list[float]] = {hosts: [] for hosts in given.hosts}
    with tempfile.TemporaryDirectory(prefix="headrace-setup-") as name:
        folder = Path(name)
        scene = make_scene(folder, given, batch_rows=16_384)
        print(f"{scene.rows:,} events of {scene.model}, batches of 16,384")
        for number in range(given.rounds):
            for hosts in given.hosts if number % 2 == 0 else reversed(given.hosts):
                found, whole = set_up(scene, folder / f"run{number}-{hosts}", hosts)
                if len(found["host"]) != hosts:
                    raise SystemExit(f"{hosts} hosts must have ended, got {found}")
                of_hosts[hosts] += found["host"]
                controllers[hosts] += found.get("controller", [])
                commands[hosts].append(whole)
    first = statistics.median(of_hosts[given.hosts[0]])
    print("hosts  a host, CPU s  largest  by that of the first row  controller, CPU s  command, s")
    for hosts, secs in of_hosts.items():
        controller = f"{statistics.median(controllers[hosts]):.1f}" if controllers[hosts] else ""
        print(f"{hosts:5}  {statistics.median(secs):13.1f}  {max(secs):7.1f}  {statistics.median(secs) / first:24.2f}x  {controller:>17}  "
              f"{statistics.median(commands[hosts]):10.1f}")  # fmt: skip
    worst = max(statistics.median(secs) / first for secs in of_hosts.values())
    print(f"a host takes {worst:.2f} times the processor seconds of the first row at most; target {TARGET}")
    return int(worst > TARGET and not given.quick)


if __name__ == "__main__":
    sys.exit(main())
