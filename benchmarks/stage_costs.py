"""CPU seconds from raw events to served weights by stage, for a million events, of the search log and of Globo's news log.

    python -m benchmarks.stage_costs [--data FOLDER] [--rows 400000] [--hours 48]

Each stage is the command that a user gives; its figure is the CPU of the process and of those that it starts, as the system counts it, so a stage includes the start of its command.
The training without options has its trial; the one with options trains a DLRM with a linear part once. Without ``--data`` the news log is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.many_models import globo, sample
from benchmarks.support.harness import machine

_ROOT = Path(__file__).resolve().parents[1]
_OPTIONS = {"deep": True, "linear": True, "network": "dlrm", "passes": 1}


def cpu_secs(line: Sequence[str], home: Path) -> tuple[float, str]:
    """The CPU of a command and its children, and what it prints."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "HEADRACE_HOME": str(home)}
    done = subprocess.run([sys.executable, "-m", "headrace", *line], env=environment, capture_output=True, text=True,
                          check=False)  # fmt: skip
    if done.returncode:
        raise SystemExit(f"headrace {' '.join(line)} failed:\n{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def measure(folder: Path, log: Path, table: str, example: str, model: str) -> tuple[int, dict[str, float]]:
    """The events of the log, and the CPU seconds of each stage."""
    home, options = folder / "home", folder / "options.json"
    options.write_text(json.dumps(_OPTIONS))
    lines = {
        "table add": ["table", "add", table, str(log), "--time-column", "time"],
        "model submit": ["model", "submit", str(_ROOT / "examples" / example), "--table", table],
        "work": ["work", "--until-idle"],
        "train, without options": ["train", model, "--run-dir", str(folder / "run"), "--json"],
        "train, with options": ["train", model, "--run-dir", str(folder / "given"), "--config", str(options), "--json"],
        "export full": ["export", "full", str(folder / "run"), "--output", str(folder / "chain")],
    }
    found, events = {}, 0
    for stage, line in lines.items():
        found[stage], text = cpu_secs(line, home)
        if stage.startswith("train"):
            events = int(json.loads(text)["events_this_time"])
    return events, found


def main() -> None:
    """Print the stages of both logs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of the public logs")
    parser.add_argument("--rows", type=int, default=400_000, help="events of the search log")
    parser.add_argument("--hours", type=int, default=48, help="hours of the news log")
    given = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory(prefix="headrace-stages-") as name:
        logs = [("search_log", "search_ads.py", "search_ctr")]
        if given.data is not None:
            logs.append(("globo", "globo.py", "news_ctr"))
        for table, example, model in logs:
            folder = Path(name, table)
            folder.mkdir()
            log = (
                sample(folder, given.rows)
                if table == "search_log"
                else globo(folder, given.data / "globo", given.hours)
            )
            events, found = measure(folder, log, table, example, model)
            print(f"{table}: {events:,} events\n  {'stage':26}{'CPU s':>8}{'a million events':>18}")
            for stage, secs in found.items():
                print(f"  {stage:26}{secs:8.2f}{secs / events * 1e6:18.1f}", flush=True)


if __name__ == "__main__":
    main()
