"""The first query of a warehouse in Python: a fresh process that imports headrace, opens a warehouse of many components, and asks for a page of them.

    python -m benchmarks.open_warehouse [--models 200] [--rounds 10]

The warehouse has ``--models`` models of 20 inputs over a table of 24 partitions; nothing is computed. Printed are medians over fresh processes, in seconds of the clock and
of the processor: of the imports of ``headrace``, of ``hr.open``, of its first query after that, and of a second one.

Target: 0.1 s for the first query.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import headrace as hr
from benchmarks.support.harness import machine
from headrace.demo.sample_log import SampleLogConfig, write_sample_log

TARGET_SECS = 0.1
_INPUTS = 20
_QUERIED = """
import json, sys, time
def spent(since=(0.0, 0.0)):
    return time.perf_counter() - since[0], time.process_time() - since[1]
begun = spent()
import headrace as hr
hr.open
laps = {"import headrace": spent(begun)}
begun = spent()
home = hr.open(sys.argv[1])
laps["hr.open"] = spent(begun)
for name in ("first query", "second query"):
    begun = spent()
    found = home.search(column="query", sort="newest")
    laps[name] = spent(begun)
assert len(found.graphs) == 50
print(json.dumps(laps))
"""


def fill(home: Path, models: int) -> None:
    """Submit models, each with inputs of its own."""
    write_sample_log(home / "logs", SampleLogConfig(hours=24, mean_rows_per_hour=50), late=False)
    with hr.open(home / "home", create=True, progress=False) as w:
        w.add_table("log", home / "logs", time_column="time")
        made = []
        for number in range(models):
            model = hr.Model(f"model_{number}", client="search", label="clicked", table="log")
            for column in range(_INPUTS):
                model.input(
                    f"input_{column}", hr.text("query").unigrams().hash_buckets(1000 + number * _INPUTS + column)
                )
            made.append(model)
        w.submit(*made, policy="none")


def main() -> int:
    """Measure; the exit status is 1 if the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory(prefix="headrace-open-") as name:
        fill(Path(name), given.models)
        command = [sys.executable, "-c", _QUERIED, f"{name}/home"]
        rounds = [
            json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(given.rounds + 1)
        ][1:]
    print(f"{given.models * _INPUTS:,} components; medians of {given.rounds} fresh processes")
    print(f"{'':<18}{'clock':>8}{'processor':>11}")
    for lap in rounds[0]:
        clock, processor = (statistics.median(one[lap][k] for one in rounds) for k in (0, 1))
        print(f"{lap:<18}{clock:>7.3f}s{processor:>10.3f}s")
    first = statistics.median(one["first query"][0] for one in rounds)
    print(f"target of the first query: {TARGET_SECS} s: {'met' if first <= TARGET_SECS else 'missed'}")
    return int(first > TARGET_SECS)


if __name__ == "__main__":
    sys.exit(main())
