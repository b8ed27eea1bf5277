"""Ten core figures beside those of the last release on this kind of machine; what got worse by more than its noise fails.

    python -m benchmarks.gate [--rounds 5] [--only NAME ...] [--write] [--release VERSION] [--file benchmarks/baseline.json]

Each figure is a ratio of two measurements of one process in turns, from the functions of another script at a small size, and less is better. Seconds are CPU seconds. ``--write`` records the
figures as the baseline of this commit and kind of machine (CPU model, cores, memory) instead of comparing them; the working tree must be committed. Exit status 1: a figure is worse.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.support.baselines import (
    COUNTED,
    FORMAT,
    TIMED,
    Baseline,
    Baselines,
    Compared,
    Measured,
    baselines_text,
    compare,
    machine_kind,
    measured,
    read_baselines,
)

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "benchmarks" / "baseline.json"
#: The ratio of a round.
Round = Callable[[], float]


@dataclass(frozen=True)
class Figure:
    """One figure.

    Attributes:
        name: of the figure.
        script: the benchmark whose functions measure it.
        what: the ratio in words.
        kind: see :class:`~benchmarks.support.baselines.Measured`.
        prepare: with an empty folder, what measures a round; unmeasured work such as compiling is done before.
    """

    name: str
    script: str
    what: str
    kind: str
    prepare: Callable[[Path], Round]


def _cpu_secs(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _ratio(ours: Callable[[], object], other: Callable[[], object], repeats: int = 3) -> float:
    """CPU seconds of ours by the other's, the least of some repeats in turns."""
    pairs = [(_cpu_secs(ours), _cpu_secs(other)) for _ in range(repeats)]
    mine, theirs = (min(side) for side in zip(*pairs, strict=True))
    return mine / theirs


def memo_bytes(folder: Path) -> Round:
    """The size of a memo file by that of Parquet with ZSTD."""
    from benchmarks.memo_format import memo_columns, sides

    every, table = {side.name: side for side in sides()}, memo_columns(20_000)

    def size(name: str) -> int:
        every[name].write(table, str(folder / "file"))
        return os.path.getsize(folder / "file")

    return lambda: size("memo format 3") / size("parquet zstd, default encodings")


def memo_reading(folder: Path) -> Round:
    """Reading all columns of a memo file by reading them from Parquet with ZSTD."""
    from benchmarks.memo_format import memo_columns, sides

    every, table = {side.name: side for side in sides()}, memo_columns(40_000)
    places = {"memo format 3": str(folder / "a.memo"), "parquet zstd, default encodings": str(folder / "a.parquet")}
    for name, place in places.items():
        every[name].write(table, place)

    def read(name: str) -> None:
        every[name].read(places[name], table.column_names, table.schema)

    ours, other = places
    _ratio(lambda: read(ours), lambda: read(other))
    return lambda: _ratio(lambda: read(ours), lambda: read(other))


def shared_plan(folder: Path) -> Round:
    """A quarter of the components in one plan by each of them alone."""
    import pyarrow.parquet as pq

    from benchmarks.shared_components import components, cpu_secs
    from benchmarks.support.search_log import generate

    generate(folder / "log.parquet", 5_000)
    batch = pq.read_table(folder / "log.parquet").combine_chunks()
    wanted = dict(list(components().items())[::4])

    def ratio() -> float:
        alone = sum(cpu_secs({name: root}, batch) for name, root in wanted.items())
        return cpu_secs(wanted, batch) / alone

    ratio()
    return ratio


def kernels_by_reading(folder: Path) -> Round:
    """The kernels of the search log's inputs by reading their columns."""
    from benchmarks.kernels_and_reading import cpu_secs
    from benchmarks.support.read_files import write_files

    _, source, components = next(write_files(folder, 30_000, None))
    cpu_secs(source, components)

    def ratio() -> float:
        reading, kernels = cpu_secs(source, components)
        return kernels / reading

    return ratio


def import_by_polars(folder: Path) -> Round:
    """Parsing and writing a CSV log by Polars' reader and writer."""
    from benchmarks.import_speed import by_job, by_polars, narrow, schema_of, write_log

    columns = narrow(50_000)
    source, schema = folder / "log.csv", schema_of(columns, "csv")
    write_log(columns, "csv", source)

    def ours() -> None:
        with tempfile.TemporaryDirectory(dir=folder) as target:
            by_job(source, schema, Path(target) / "out")

    ours()
    return lambda: _ratio(ours, lambda: by_polars(source, schema, folder / "out.parquet"))


def exact_auc(folder: Path) -> Round:
    """The exact AUC by counting at distinct scores with numpy."""
    from benchmarks.exact_auc import by_distinct_scores, drawn
    from trainer.evaluation.rank_counts import rank_counts

    labels, scores = drawn(500_000, 0.5)
    assert rank_counts(labels, scores) == by_distinct_scores(labels, scores)
    return lambda: _ratio(lambda: rank_counts(labels, scores), lambda: by_distinct_scores(labels, scores))


def pruned_step(folder: Path) -> Round:
    """Lookups and updates of pruned tables by those of whole tables."""
    from benchmarks import pruning_speed as own
    from trainer.options.pruning import PruningOptions
    from trainer.tables import CpuEngine, IdBatch
    from trainer.tables.routes.pruned_engine import PrunedEngine

    case, rows = own.Case(16, 1), 50_000
    pruned = PrunedEngine(own.features_of(case, rows), PruningOptions.read({"budget": 0.5, **own._NEVER}), seed=0)
    whole = CpuEngine(own.features_of(case, rows // 2), seed=0)
    batches = own.make_batches(case, rows)
    modulo = [IdBatch(one.ids % (rows // 2), one.offsets) for one in batches]
    gradients = np.random.default_rng(0).standard_normal((own._EVENTS, pruned.width), np.float32)
    for _ in range(2):
        own.secs_of(pruned, batches, gradients)
        own.secs_of(whole, modulo, gradients)
    pruned.rows.prune()
    return lambda: _ratio(
        lambda: own.secs_of(pruned, batches, gradients), lambda: own.secs_of(whole, modulo, gradients)
    )


def wire_bytes(folder: Path) -> Round:
    """The messages of a batch with ids and rows encoded by the plain ones."""
    from benchmarks.wire_compression import bytes_of, make_batch

    def ratio() -> float:
        plain, _, encoded = bytes_of(make_batch(1.05, 1), 32)
        return encoded["fp16"].whole / plain.whole

    return ratio


def status_by_sqlalchemy(folder: Path) -> Round:
    """``headrace status`` by a process that imports SQLAlchemy."""
    from benchmarks.cold_start import ROOT as SOURCES
    from benchmarks.cold_start import Tree

    tree = Tree(SOURCES, folder)
    command = ("-m", "headrace", "status", "--home", str(folder / "home"))
    tree.run("-m", "headrace", "init", "--home", str(folder / "home"))

    def ratio() -> float:
        pairs = [(tree.run(*command).cpu, tree.run("-c", "import sqlalchemy").cpu) for _ in range(3)]
        mine, theirs = (min(side) for side in zip(*pairs, strict=True))
        return mine / theirs

    ratio()
    return ratio


def first_features(folder: Path) -> Round:
    """A process that computes four inputs of 1,000 rows by one that makes the rows."""
    from benchmarks.try_frame import _FRAME, _PRINTED, _TRIED, cpu_secs

    def ratio() -> float:
        pairs = [(cpu_secs(_FRAME + _TRIED + _PRINTED), cpu_secs(_FRAME + _PRINTED)) for _ in range(3)]
        mine, theirs = (min(side) for side in zip(*pairs, strict=True))
        return mine / theirs

    ratio()
    return ratio


FIGURES = (
    Figure("memo_bytes", "memo_format", "size of a memo file / Parquet with ZSTD", COUNTED, memo_bytes),
    Figure("memo_reading", "memo_format", "reading a memo file / Parquet with ZSTD", TIMED, memo_reading),
    Figure("shared_plan", "shared_components", "25 components in one plan / each alone", TIMED, shared_plan),
    Figure("kernels", "kernels_and_reading", "kernels / reading their columns", TIMED, kernels_by_reading),
    Figure("import", "import_speed", "parsing and writing a CSV log / Polars", TIMED, import_by_polars),
    Figure("exact_auc", "exact_auc", "exact AUC / numpy by distinct scores", TIMED, exact_auc),
    Figure("pruned_step", "pruning_speed", "lookup and update, pruned / whole tables", TIMED, pruned_step),
    Figure("wire_bytes", "wire_compression", "encoded messages of a batch / plain ones", COUNTED, wire_bytes),
    Figure("status", "light_commands", "headrace status / import sqlalchemy", TIMED, status_by_sqlalchemy),
    Figure("first_features", "try_frame", "four inputs of 1,000 rows / the rows alone", TIMED, first_features),
)


def measure(figures: Sequence[Figure], rounds: int, folder: Path) -> dict[str, Measured]:
    """Each figure over its rounds."""
    found = {}
    for figure in figures:
        place = folder / figure.name
        place.mkdir()
        began = time.perf_counter()
        run_round = figure.prepare(place)
        found[figure.name] = measured(figure.kind, [run_round() for _ in range(rounds)])
        print(f"measured {figure.name} in {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    return found


def report(compared: Sequence[Compared], baseline: Baseline | None) -> str:
    """Each figure beside the baseline's, then what got worse."""
    words = {figure.name: figure.what for figure in FIGURES}
    before = f"release {baseline.release}, commit {baseline.commit[:12]}" if baseline else "none of this kind of machine: counted figures are compared with another's"  # fmt: skip
    lines = [
        f"baseline: {before}",
        f"{'figure':<15} {'ratio, less is better':<42} {'before':>8} {'now':>8} {'noise':>7}",
    ]
    for one in compared:
        verdict = "  worse" if one.is_worse else "  better" if one.is_better else ""
        shown = "-" if one.before is None else f"{one.before.ratio:.3f}"
        lines.append(f"{one.name:<15} {words.get(one.name, ''):<42} {shown:>8} {one.now.ratio:8.3f} {one.now.noise:7.3f}{verdict}")  # fmt: skip
    worse = [
        f"{one.name} (+{one.now.ratio - one.before.ratio:.3f}, allowed +{one.allowed:.3f})"
        for one in compared
        if one.is_worse and one.before
    ]
    lines.append(f"worse by more than the noise: {', '.join(worse) or 'none'}")
    return "\n".join(lines)


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def write(file: Path, baselines: Baselines, added: Baseline) -> None:
    """Replace the file by one with a baseline more."""
    new = file.with_name(f"{file.name}.new")
    new.write_text(baselines_text(baselines.with_baseline(added)), encoding="utf-8")
    os.replace(new, file)


def main() -> int:
    """Measure, then compare or record."""
    from importlib.metadata import version

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=[figure.name for figure in FIGURES])
    parser.add_argument("--write", action="store_true", help="record the figures as a baseline")
    parser.add_argument("--release", default=version("headrace"), help="the version that a recorded baseline is of")
    parser.add_argument("--file", type=Path, default=FILE)
    options = parser.parse_args()
    baselines = read_baselines(options.file.read_bytes()) if options.file.exists() else Baselines(FORMAT, ())
    if options.write and _git("status", "--porcelain", "--untracked-files=no"):
        parser.error("--write needs a committed working tree: a baseline is that of a commit")
    chosen = [figure for figure in FIGURES if not options.only or figure.name in options.only]
    kind = machine_kind()
    print(f"{kind.processor}, {kind.cores} cores, {kind.memory_gib} GiB", flush=True)
    with tempfile.TemporaryDirectory(prefix="headrace-gate-") as name:
        found = measure(chosen, options.rounds, Path(name))
    compared = compare(found, baselines, kind)
    print(report(compared, baselines.newest(kind)))
    if options.write:
        write(options.file, baselines, Baseline(options.release, _git("rev-parse", "HEAD"), kind, found))
        print(f"recorded in {options.file}")
        return 0
    return int(any(one.is_worse for one in compared))


if __name__ == "__main__":
    sys.exit(main())
