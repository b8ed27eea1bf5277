"""Time of each command from a raw log to a first trained model, as in docs/your-own-log.md.

    python -m benchmarks.first_model [--rows 100000] [--first-use]

Prints the seconds of each command and their sum up to the trained model for CSV, TSV, JSON lines and Parquet, with compiled
kernels; with ``--first-use`` those of CSV on a machine that has compiled none yet. The times on the page are those of
``--rows 6000``, whose logs its test writes.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support.own_log_page import chapter
from tests.support.own_logs import write_coupons, write_installs, write_installs_tsv, write_news

#: Format to the chapter of the page, the model's name, the log's name, and its writer.
FORMATS: Mapping[str, tuple[str, str, str, Callable[..., None]]] = {
    "CSV": ("CSV and TSV", "coupons", "coupons.csv", write_coupons),
    "TSV": ("CSV and TSV", "installs", "installs.tsv", write_installs_tsv),
    "JSON lines": ("JSON lines", "news", "news.jsonl", write_news),
    "Parquet": ("Parquet", "installs", "exports", write_installs),
}


def plan(name: str) -> tuple[str, str, list[tuple[str, ...]]]:
    """The model's name, its file and its commands for a format."""
    title, model, log, _ = FORMATS[name]
    found = chapter(title)
    source, commands = found.model, list(found.commands)
    if name == "CSV":
        commands += chapter("When the NE is above 1").commands
    elif name == "TSV":  # the page's CSV chapter with another log and model
        source = chapter("Parquet").model
        commands = [
            tuple(word.replace("coupons.csv", log).replace("coupons", model) for word in words) for words in commands
        ]
        commands = commands[: _of_train(commands) + 1]  # the others name columns of the coupons
    return model, source, commands


def _of_train(commands: list[tuple[str, ...]]) -> int:
    return next(at for at, words in enumerate(commands) if words[1] == "train")


def run(name: str, rows: int, first_use: bool = False) -> float:
    """Run a format's commands in a new folder; return the seconds up to the trained model."""
    model, source, commands = plan(name)
    with tempfile.TemporaryDirectory(prefix="headrace-first-model-") as folder:
        _, _, log, write = FORMATS[name]
        write(Path(folder, log), rows)
        Path(folder, f"{model}.py").write_text(source, encoding="utf-8")
        total = 0.0
        environment = {
            **os.environ,
            "PYTHONPATH": str(Path(__file__).resolve().parent.parent),
            "HEADRACE_HOME": str(Path(folder, "home")),
        }
        if first_use:
            environment["NUMBA_CACHE_DIR"] = str(Path(folder, "kernels"))
        for at, words in enumerate(commands):
            began = time.monotonic()
            done = subprocess.run([sys.executable, "-m", *words], cwd=folder, env=environment, capture_output=True, text=True, check=False)  # fmt: skip
            secs = time.monotonic() - began
            if done.returncode:
                raise SystemExit(f"{' '.join(words)} failed:\n{done.stderr}")
            total += secs if at <= _of_train(commands) else 0
            print(f"  {secs:6.1f} s  {' '.join(words)}")
            if found := re.search(r"normalized entropy [\d.]+", done.stdout):
                print(f"            test {found.group()}")
    print(f"{name}: {rows:,} rows to a trained model in {total:.0f} s\n")
    return total


def main() -> None:
    """Measure every format."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--first-use", action="store_true", help="compile all kernels again")
    options = parser.parse_args()
    names = ["CSV"] if options.first_use else list(FORMATS)
    totals = {name: run(name, options.rows, options.first_use) for name in names}
    print(", ".join(f"{name} {secs:.0f} s" for name, secs in totals.items()))


if __name__ == "__main__":
    main()
