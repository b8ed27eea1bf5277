"""Time of each command from a raw log to a first trained model, as in docs/your-own-log.md.

    python -m benchmarks.first_model [--rows 100000]

Prints the seconds of each command and their sum for CSV, TSV, JSON lines and Parquet, with compiled kernels.
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
    """The model's name, its file and the commands up to ``train`` for a format."""
    title, model, log, _ = FORMATS[name]
    found = chapter(title)
    source, commands = found.model, list(found.commands)
    if name == "TSV":  # the page's CSV chapter with another log and model
        source = chapter("Parquet").model
        commands = [
            tuple(word.replace("coupons.csv", log).replace("coupons", model) for word in words) for words in commands
        ]
    last = next(at for at, words in enumerate(commands) if words[1] == "train")
    return model, source, commands[: last + 1]


def run(name: str, rows: int) -> float:
    """Run a format's commands in a new folder; return their seconds."""
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
        for words in commands:
            began = time.monotonic()
            done = subprocess.run([sys.executable, "-m", *words], cwd=folder, env=environment, capture_output=True, text=True, check=False)  # fmt: skip
            secs = time.monotonic() - began
            if done.returncode:
                raise SystemExit(f"{' '.join(words)} failed:\n{done.stderr}")
            total += secs
            print(f"  {secs:6.1f} s  {' '.join(words)}")
            if found := re.search(r"normalized entropy [\d.]+", done.stdout):
                print(f"            test {found.group()}")
    print(f"{name}: {rows:,} rows to a trained model in {total:.0f} s\n")
    return total


def main() -> None:
    """Measure every format."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    rows = parser.parse_args().rows
    totals = {name: run(name, rows) for name in FORMATS}
    print(", ".join(f"{name} {secs:.0f} s" for name, secs in totals.items()))


if __name__ == "__main__":
    main()
