"""A training job under 200 seeded faults over all roles, against the same job undisturbed.

    python -m benchmarks.training_chaos [--globo FOLDER] [--hours 24] [--passes 4] [--faults 200] [--mean-secs 1.5] [--seed 1] [--servers N] [--workers N] [--kinds flip,drop,…] [--home FOLDER --model NAME --end TIME] [--quick]

The job is ``headrace chaos --compare -- train`` with two hosts and two readers over memos of one model of Globo's log, or of the sample
log without it: processes are killed, paused, cut off from each other, get slow disks and preemption notices. With ``--servers``
tables are on parameter servers, which are disturbed too: also their keepers are killed, their links slow, their machines lost, and their memory
folder full. With ``--workers`` hosts reach them by embedding workers. Bytes between every pair of roles are damaged, and neighbours without the token visit. The events are
counted by the ledger of the newest commit, and all weights, slots and the history compared with the undisturbed run's, bit for
bit. A job that ends before its last fault misses the target: give more ``--passes``.

Targets: 200 faults, no event lost, none repeated, all weights equal, no neighbour let in.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.support.harness import machine
from benchmarks.support.training_scene import add_options, make_scene
from trainer.job.launch.chaos.limited_memory import may_limit_memory
from trainer.job.launch.chaos.schedule import ROLES, SERVER, FaultKind, kinds_of


def all_kinds(*, servers: bool) -> list[str]:
    """The kinds of faults of a job that this user may do."""
    roles = (*ROLES, SERVER) if servers else ROLES
    return [str(one) for one in kinds_of(roles) if one is not FaultKind.FULL_MEMORY or may_limit_memory()]


def main() -> int:
    """Run; the exit status is 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--passes", type=int, default=4, help="passes over the log")
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--mean-secs", type=float, default=1.5, help="between two faults")
    parser.add_argument("--epoch-secs", type=float, default=6.0, help="between two commits")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--servers", type=int, default=0, help="parameter servers; 0: hosts hold the tables")
    parser.add_argument("--workers", type=int, default=0, help="embedding workers; 0: hosts use the servers themselves")
    parser.add_argument("--kinds", default="", help="kinds of faults, with commas; default: all that this user may do")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    faults, mean_secs, passes = (10, 0.8, 6) if given.quick else (given.faults, given.mean_secs, given.passes)
    print(machine())
    with tempfile.TemporaryDirectory(prefix="headrace-chaos-") as name:
        folder = Path(name)
        scene = make_scene(folder, given, passes=passes)
        print(f"{scene.rows:,} events of {scene.model} in {passes} passes, {given.hosts} hosts, 2 readers, "
              f"{given.servers} servers, {given.workers} embedding workers, a commit at least every {given.epoch_secs:g} s", flush=True)  # fmt: skip
        began, record = time.monotonic(), folder / "result.json"
        train = scene.command(folder / "unused", "--hosts", str(given.hosts), "--readers", "2",
                              "--epoch-secs", str(given.epoch_secs),
                              *(("--servers", str(given.servers)) if given.servers else ()),
                              *(("--embedding-workers", str(given.workers)) if given.workers else ()))  # fmt: skip
        kinds = given.kinds or ",".join(all_kinds(servers=given.servers > 0))
        chaos = ["chaos", "--seed", str(given.seed), "--faults", str(faults), "--mean-secs", str(mean_secs),
                 "--kinds", kinds, "--compare", "--folder", str(folder / "runs"), "--", *train]  # fmt: skip
        command = [sys.executable, "-m", "headrace", "--record", str(record), *chaos]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if not record.exists():
            raise SystemExit(done.stderr)
        found = json.loads(record.read_text())
        lost = sorted(found["lost_secs"])
        print("; ".join(f"{count} {fault}" for fault, count in sorted(found["faults"].items())))
        print(
            "; ".join(
                f"{one['delivered']} {name}, {one['ended_connections']} connections ended"
                for name, one in sorted(found["damages"].items())
            )
        )
        print(f"{found['delivered_damages']} damages delivered; {found['visits']} visits of neighbours, let in by {', '.join(found['let_in']) or 'none'}; "
              f"{found['memory_holds']} holds by full memory")  # fmt: skip
        print(f"{found['attempts']} attempts, {found['commits']} commits, {found['disturbed_secs']:.0f} s under faults; training lost to "
              f"{len(lost)} crashes: {sum(lost):.1f} s in all, {lost[-1] if lost else 0:.1f} s at most")  # fmt: skip
        print(f"{found['applied_faults']} faults, target {faults}; {found['trained']['lost']} events lost, "
              f"{found['trained']['repeated']} repeated, {len(found['differing'])} arrays differ, targets 0; "
              f"{time.monotonic() - began:.0f} s in all")  # fmt: skip
    return 0 if found["is_right"] and found["applied_faults"] == faults else 1


if __name__ == "__main__":
    sys.exit(main())
