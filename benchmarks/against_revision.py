"""Compare the benchmarks of the working tree with those of another revision, in alternating runs.

    python -m benchmarks.against_revision REVISION [--only many_models catalog_scale ...] [--rounds 3] [--starts 15]
                                          [--data FOLDER] [--quick]

REVISION is checked out into a temporary git worktree, and each side runs the scripts of its own tree on its own packages.
The sides alternate within a round. A figure is the median over the rounds. The ratio, working tree to REVISION, is the
median of the ratios within rounds, so that a slow round does not affect it. ``import_time`` starts Python ``--starts``
times. The catalogs of ``catalog_scale`` have 50,000 components. ``dlrm_throughput`` trains the sample log, or with ``--data``
twelve hours of the news log there.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.support.harness import machine

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGES = ("transforms", "warehouse", "pipelines", "trainer", "headrace")
#: Modules that held ``read_fragment``, the newest first.
READERS = ("warehouse.reading.reader", "warehouse.reader")

#: Values by measure and column: ``{("submitting", "CPU s"): 3.36}``.
Figures = dict[tuple[str, str], float]


@dataclass(frozen=True)
class Script:
    """A script of ``benchmarks/`` that prints one line per measure.

    Attributes:
        options: its options.
        small: its options for ``--quick``.
        line: the pattern of a printed line: the measure, then the values of ``columns``.
        columns: the names of the values.
        with_data: its options in place of these, beside ``--data FOLDER``, where public logs are given.
    """

    options: tuple[str, ...]
    small: tuple[str, ...]
    line: re.Pattern[str]
    columns: tuple[str, ...]
    with_data: tuple[str, ...] = ()


SCRIPTS = {
    "many_models": Script(
        ("--logs", "sample"), ("--logs", "sample", "--small"), re.compile(r"\s*(\S.*?)\s{2,}([\d.]+) s\b"), ("CPU s",)
    ),
    "catalog_scale": Script(
        ("--components", "50000"),  # each side fills its catalogs again in every round
        ("--small", "--database", "sqlite", "--submissions", "5"),
        re.compile(r"(\S.*?)\s{2,}p50\s+([\d.]+) ms\s+p99\s+([\d.]+) ms\s+CPU\s+([\d.]+) ms"),
        ("p50 ms", "p99 ms", "CPU ms"),
    ),
    "direct_runner_overhead": Script(
        (), ("--small",), re.compile(r"\s*(\S.*?)\s{2,}([\d.]+)(?:\s+-?[\d.]+%)?(?:\s+([\d.]+))?$"), ("wall s", "CPU s")
    ),
    "embedding_kernels": Script(
        ("--rounds", "1"),
        ("--rounds", "1", "--repeats", "3", "--case", "one-hot"),
        re.compile(r"\s+(headrace)\s+lookup\s+([\d.]+) ms\s+lookup and update\s+([\d.]+) ms"),
        ("lookup ms", "both ms"),
    ),
    "dlrm_throughput": Script(
        ("--small", "--rounds", "1", "--without-keras"),
        ("--small", "--rounds", "1", "--without-keras"),
        re.compile(r"\s+round \d+ (headrace)\s+([\d,]+) samples/s,\s+([\d,]+) after"),
        ("rows/s", "later/s"),
        ("--hours", "12", "--rounds", "1", "--without-keras"),
    ),
    "partitioned_cores": Script(
        ("--rounds", "3"), ("--rounds", "1", "--events", "512"), re.compile(r"\s+(\S.*?)\s{2,}([\d.]+) ms\b"), ("ms",)
    ),
    "hashed_rows": Script(
        ("--rows", "2000000"),
        ("--rows", "100000", "--rounds", "3"),
        re.compile(r"((?:read|update): [^:]*): ([\d,]+) ns"),
        ("ns",),
    ),
    "pruning_speed": Script(
        ("--rows", "1000000"),
        ("--rows", "100000", "--rounds", "1"),
        re.compile(
            r".*? of (\d+ columns, bags of \d+), .*lookup ([\d.]+) ms, ([\d.]+)x .*update ([\d.]+) ms, ([\d.]+)x"
        ),
        ("lookup ms", "by cpu", "upd ms", "upd by"),
    ),
    "ps_fetch_speed": Script(
        ("--rounds", "2"),
        ("--rounds", "1", "--megabytes", "20"),
        re.compile(r"\s*([\d,]+ +\d+ +[\d,]+)\s+([\d.]+)\s+[\d.]+\s+[\d.]+\s+([\d.]+)\s"),
        ("GB/s CPU", "GB/s"),
    ),
    "ps_wire": Script(
        ("--speed", "--gigabits", "0", "--rounds", "3"),
        ("--speed", "--gigabits", "0", "--rounds", "1", "--steps", "5"),
        re.compile(r"\s*(loopback +\S+ \S+)\s+([\d.]+)\s+([\d.]+)\s+[\d.]+x\s+([\d.]+)"),
        ("lookups", "updates", "CPU ms"),
    ),
}
IMPORT_TIME = "import_time"
MEASUREMENTS = (*SCRIPTS, IMPORT_TIME)


def figures_of(script: Script, printed: str) -> Figures:
    """The figures of a script's output. A measure that is printed twice, such as for two databases, is numbered."""
    found: Figures = {}
    seen: Counter[str] = Counter()
    for line in printed.splitlines():
        match = script.line.match(line)
        if match is None:
            continue
        what, *values = match.groups()
        seen[what] += 1
        name = what if seen[what] == 1 else f"{what} ({seen[what]})"
        found |= {
            (name, column): float(value.replace(",", ""))
            for column, value in zip(script.columns, values, strict=True)
            if value
        }
    return found


def run_script(name: str, tree: Path, quick: bool, data: Path | None) -> Figures:
    """Run a script of ``tree`` and return its figures; a missed target is no failure."""
    script = SCRIPTS[name]
    options = script.small if quick else script.options
    if data is not None and script.with_data:
        options = ("--data", str(data), *script.with_data)
    command = [sys.executable, "-m", f"benchmarks.{name}", *options]
    done = subprocess.run(command, cwd=tree, env=_environment(tree), capture_output=True, text=True, check=False)
    found = figures_of(script, done.stdout)
    if done.returncode not in (0, 1) or not found:
        raise SystemExit(
            f"{name} of {tree} must print figures, got status {done.returncode}:\n{done.stdout}{done.stderr}"
        )
    return found


def start_commands(tree: Path) -> dict[str, list[str]]:
    """The commands that measure imports, on the modules of ``tree``."""
    reader = next(name for name in READERS if (tree / f"{name.replace('.', '/')}.py").is_file())
    return {
        "python alone": ["-c", "pass"],
        "import headrace": ["-c", "import headrace"],
        "headrace --help": ["-m", "headrace", "--help"],
        "import read_fragment": ["-c", f"from {reader} import read_fragment"],
    }


def start_secs(tree: Path, arguments: Sequence[str]) -> tuple[float, float]:
    """Wall and CPU seconds of one Python process on the packages of ``tree``."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments], cwd=tree, env=_environment(tree), stdout=subprocess.DEVNULL, check=True
    )
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure_starts(trees: Sequence[Path], starts: int) -> list[list[Figures]]:
    """The figures of each tree, one per start; the first start, which writes bytecode, is not measured."""
    commands = [start_commands(tree) for tree in trees]
    found: list[list[Figures]] = [[] for _ in trees]
    for number in range(starts + 1):
        rounds: list[Figures] = [{} for _ in trees]
        for what in commands[0]:
            for figures, tree, command in zip(rounds, trees, commands, strict=True):
                wall, cpu = start_secs(tree, command[what])
                figures |= {(what, "wall s"): wall, (what, "CPU s"): cpu}
        for one, figures in zip(found, rounds, strict=True):
            one += [figures] * (number > 0)
    return found


def run_alternately(run: Callable[[Path], Figures], trees: Sequence[Path], rounds: int) -> list[list[Figures]]:
    """The figures of each tree, one per round."""
    turns = [[run(tree) for tree in trees] for _ in range(rounds)]
    return [list(one) for one in zip(*turns, strict=True)]


def table(theirs: Sequence[Figures], ours: Sequence[Figures], revision: str) -> str:
    """Both sides' medians and the ratio of the working tree to ``revision``, one line per figure."""
    lines = [f"{'what':<50} {'':<7} {revision[:12]:>12} {'working tree':>12} {'ratio':>6}"]
    for key in dict.fromkeys(key for figures in (*theirs, *ours) for key in figures):
        pairs = [(one.get(key), other.get(key)) for one, other in zip(theirs, ours, strict=True)]
        sides = [_median([value for value in side if value is not None]) for side in zip(*pairs, strict=True)]
        ratio = _median([other / one for one, other in pairs if one and other is not None])
        shown = [f"{'-':>12}" if value is None else f"{value:12.3f}" for value in sides]
        lines.append(f"{key[0]:<50} {key[1]:<7} {' '.join(shown)} {'-' if ratio is None else f'{ratio:.2f}':>6}")
    return "\n".join(lines)


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


@contextmanager
def checkout(revision: str) -> Iterator[Path]:
    """A temporary git worktree of ``revision``."""
    with tempfile.TemporaryDirectory(prefix="headrace-revision-") as folder:
        tree = Path(folder) / "tree"
        _git("worktree", "add", "--quiet", "--detach", str(tree), revision)
        try:
            # A folder without it is a namespace package, which any regular package of that name would hide.
            (tree / "benchmarks" / "__init__.py").touch()
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*arguments: str) -> None:
    done = subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {' '.join(arguments)} failed:\n{done.stderr}")


def _environment(tree: Path) -> Mapping[str, str]:
    return {**os.environ, "PYTHONPATH": str(tree), "TF_CPP_MIN_LOG_LEVEL": "3"}


def check_imports(tree: Path) -> None:
    """Exit unless processes for ``tree`` import its own packages."""
    names = f"benchmarks, {', '.join(PACKAGES)}"
    program = f"import {names}; print(*(package.__path__[0] for package in ({names})))"
    done = subprocess.run([sys.executable, "-c", program], cwd=tree, env=_environment(tree), capture_output=True, text=True, check=True)  # fmt: skip
    foreign = [path for path in done.stdout.split() if not Path(path).is_relative_to(tree)]
    if foreign:
        raise SystemExit(f"packages must be imported from {tree}, got {', '.join(foreign)}")


def compare(revision: str, names: Sequence[str], rounds: int, starts: int, quick: bool, data: Path | None) -> None:
    """Print the figures of both sides for each measurement."""
    with checkout(revision) as tree:
        trees = (tree, REPOSITORY)
        for one in trees:
            check_imports(one)
        for name in names:
            if name == IMPORT_TIME:
                theirs, ours = measure_starts(trees, starts)
            else:
                theirs, ours = run_alternately(partial(run_script, name, quick=quick, data=data), trees, rounds)
            print(f"\n{name}, {len(ours)} rounds\n{table(theirs, ours, revision)}", flush=True)


def main() -> int:
    """Measure both sides and print their figures, without a verdict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", metavar="REVISION")
    parser.add_argument("--only", nargs="+", choices=MEASUREMENTS, default=list(MEASUREMENTS))
    parser.add_argument("--rounds", type=int, default=3, help="of every script")
    parser.add_argument("--starts", type=int, default=15, help="of every command whose imports are timed")
    parser.add_argument("--data", type=Path, help="folder of the public logs, for dlrm_throughput")
    parser.add_argument("--quick", action="store_true", help="the scripts' small sizes, one round, three starts")
    options = parser.parse_args()
    rounds, starts = (1, 3) if options.quick else (options.rounds, options.starts)
    print(machine())
    compare(options.revision, options.only, rounds, starts, options.quick, options.data and options.data.absolute())
    return 0


if __name__ == "__main__":
    sys.exit(main())
