"""Faults at random while workers compute: killed processes, lost connections, full disks, jumping clocks.

What is checked at the end is what ``tests/chaos`` checks: every memo is there, once, with the bytes of an undisturbed run, and no lease
is stuck. Needs the programs of a PostgreSQL server, and the right to mount a file system for full disks (root).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.chaos.havoc import small_disk
from tests.chaos.scene import COMPONENTS, HOURS, write_log
from tests.chaos.test_fifty_faults import run_and_check
from tests.postgresql import running


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="80 tasks and 8 faults")
    parser.add_argument("--seed", type=int, default=11, help="which faults when")
    options = parser.parse_args()
    hours, components, faults = (10, 8, 8) if options.small else (HOURS, COMPONENTS, 50)
    with tempfile.TemporaryDirectory(prefix="headrace-chaos-") as folder, running() as server:
        root = Path(folder)
        log = write_log(root / "log", hours)
        with small_disk(root / "home", 64 << 20) as mounted:
            if not mounted:
                print("no full disks: this user may not mount a file system")
            report = run_and_check(root, server, log, hours, components, faults, options.seed)
    for kind, count in sorted(report.faults.items()):
        print(f"{kind:>18}  {count}")
    print(f"{sum(report.faults.values())} faults in one run of {hours * components:,} tasks, {report.workers_died} times a worker died, "
          f"{report.secs:.0f} s: every memo present, none twice, none wrong, no lease stuck")  # fmt: skip


if __name__ == "__main__":
    main()
