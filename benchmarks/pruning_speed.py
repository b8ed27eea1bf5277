"""What pruning costs: lookups through addresses, whole steps, and rounds.

    python -m benchmarks.pruning_speed [--rounds 5] [--rows 10000000]

Tables of ids by a power law are looked up and updated by a pruned engine, and by a cpu engine whose tables have as many rows as the pruned ones keep: the same ids, modulo
these rows. Both take turns. A training step has a dense part beside its tables, so the overhead of a step is printed for tables alone and, with ``--dense-ms``, with a dense
part of that time. Then tables with a budget are compared with whole tables of all rows, by time and memory: steps, rounds included, and lookups alone, as of a served model. Then what checks and rounds add to a step of a stream with new rows, with rounds over the rows that they need and over all, for the same decisions.
Then a round of pruning is timed whose group has ``--rows`` rows, of which half are kept and a tenth have become more important. At last the checks and rounds of many small groups are timed, of which each table is one.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.support.harness import machine
from trainer.options.pruning import PruningOptions
from trainer.tables import Adagrad, CpuEngine, FeatureSpec, IdBatch, TableSpec
from trainer.tables.routes.pruned_engine import PrunedEngine

Array = np.ndarray[Any, np.dtype[Any]]

_TABLES, _ROWS, _BUDGET, _EVENTS, _BATCHES = 10, 400_000, 0.5, 4096, 12
_GROUPS, _FEW_ROWS, _FEW_EVENTS = 40, 500, 128
#: How far the ranks of ids move in a step: so many rows become the most popular ones.
_NEW_RANKS = 20
_NEVER = {"check_steps": 1 << 31, "decay_steps": 1 << 31}


@dataclass(frozen=True, slots=True)
class Case:
    """Tables of one width, and bags of equally many ids."""

    dim: int
    bag: int


def make_batches(case: Case, rows: int, seed: int = 0) -> list[IdBatch]:
    """Batches whose ids follow a power law."""
    draw, count = np.random.default_rng(seed), _TABLES * _EVENTS * case.bag
    offsets = np.arange(_EVENTS + 1)[None] * case.bag + np.arange(_TABLES)[:, None] * _EVENTS * case.bag
    return [
        IdBatch((draw.pareto(0.4, count) * 7).astype(np.int64) * 2_654_435_761 % rows, offsets.astype(np.int64))
        for _ in range(_BATCHES)
    ]


def features_of(case: Case, rows: int) -> list[FeatureSpec]:
    """The features of tables with so many rows."""
    return [FeatureSpec(f"t{k}", TableSpec(f"t{k}", rows, case.dim, Adagrad(0.05, 0.1), "sum")) for k in range(_TABLES)]


def secs_of(engine: CpuEngine | PrunedEngine, batches: Sequence[IdBatch], gradients: Array) -> tuple[float, float]:
    """The seconds of a lookup and of an update."""
    lookups = updates = 0.0
    for batch in batches:
        began = time.perf_counter()
        engine.lookup(batch)
        middle = time.perf_counter()
        engine.apply_gradients(batch, gradients)
        lookups, updates = lookups + middle - began, updates + time.perf_counter() - middle
    return lookups / len(batches), updates / len(batches)


def measure_steps(case: Case, rounds: int, dense_ms: float) -> None:
    """Print the seconds of both engines, and their ratios."""
    kept = int(_ROWS * _BUDGET)
    pruned = PrunedEngine(features_of(case, _ROWS), PruningOptions.read({"budget": _BUDGET, **_NEVER}), seed=0)
    direct = CpuEngine(features_of(case, kept), seed=0)
    batches = make_batches(case, _ROWS)
    modulo = [IdBatch(one.ids % kept, one.offsets) for one in batches]
    gradients = np.random.default_rng(0).standard_normal((_EVENTS, pruned.width), np.float32)
    for _ in range(2):
        secs_of(pruned, batches, gradients)
        secs_of(direct, modulo, gradients)
    pruned.rows.prune()
    before = (pruned.rows.counts.hits, pruned.rows.counts.misses)
    found: list[list[tuple[float, float]]] = [[], []]
    for _ in range(rounds):
        found[0].append(secs_of(pruned, batches, gradients))
        found[1].append(secs_of(direct, modulo, gradients))
    hits, misses = pruned.rows.counts.hits - before[0], pruned.rows.counts.misses - before[1]
    (ours, ours_update), (theirs, theirs_update) = (
        [statistics.median(one) for one in zip(*side, strict=True)] for side in found
    )
    step = (ours + ours_update + dense_ms / 1e3) / (theirs + theirs_update + dense_ms / 1e3)
    print(
        f"{_TABLES} tables of {_ROWS:,} rows, {kept:,} kept, of {case.dim} columns, bags of {case.bag}, {misses / (hits + misses):.1%} of the ids without a place: "
        f"lookup {1e3 * ours:.2f} ms, {ours / theirs:.2f}x the direct one; update {1e3 * ours_update:.2f} ms, {ours_update / theirs_update:.2f}x; "
        f"step {(ours + ours_update) / (theirs + theirs_update):.2f}x, with a dense part of {dense_ms:g} ms {step:.3f}x",
        flush=True,
    )


def set_importance(engine: PrunedEngine, importance: Array) -> None:
    """Replace the importance of all rows of the first table."""
    engine.rows.importance.of_table(0)[:] = importance
    engine.rows.importance.carry(0, *engine.rows.addresses.placed(0))


def measure_round(rows: int, rounds: int) -> None:
    """Print the seconds and the memory of a round in which a tenth of the places change hands."""
    table = TableSpec("t", rows, 16, Adagrad(0.05, 0.1), "sum")
    engine = PrunedEngine(
        [FeatureSpec("f", table)], PruningOptions.read({"budget": 0.5, "spare_share": 0.0, **_NEVER}), seed=0
    )
    draw = np.random.default_rng(0)
    engine.rows.place_new(0, np.sort(draw.permutation(rows)[: rows // 2]))
    set_importance(engine, (draw.pareto(1.0, rows) + 0.01).astype(np.float32))
    engine.rows.prune()
    before, secs, moved = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, [], []
    for _ in range(rounds):
        importance, _ = engine.rows.importance.of(0, np.arange(rows))
        chosen = draw.permutation(rows)[: rows // 10]
        importance[chosen] = np.maximum(importance[chosen], importance[draw.permutation(rows)[: rows // 10]])
        set_importance(engine, importance)
        engine.rows.candidates.mark(chosen, np.array([[0, len(chosen)]]), np.zeros(1, np.int64))
        moved_before, began = engine.rows.counts.moved_rows, time.perf_counter()
        engine.rows.prune()
        secs.append(time.perf_counter() - began)
        moved.append(engine.rows.counts.moved_rows - moved_before)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / before
    print(f"a round over {rows:,} rows, of which a tenth were updated: {statistics.median(secs):.2f} s ({min(secs):.2f} to {max(secs):.2f} s), {int(statistics.median(moved)):,} rows change places; "
          f"memory {peak:.2f}x that before", flush=True)  # fmt: skip


def new_rows(steps: int, bag: int = 1) -> Iterator[IdBatch]:
    """Batches whose ids follow a power law, of which some are new in each step."""
    draw, count = np.random.default_rng(0), _TABLES * _EVENTS * bag
    offsets = np.arange(_EVENTS + 1)[None] * bag + np.arange(_TABLES)[:, None] * _EVENTS * bag
    ends = np.cumsum((np.arange(_ROWS) + 1.0) ** -1.05)
    for k in range(steps):
        ranks = np.searchsorted(ends, draw.random(count) * ends[-1])
        yield IdBatch((ranks + _NEW_RANKS * k) * 2_654_435_761 % _ROWS, offsets.astype(np.int64))


def compile_rounds(case: Case) -> None:
    """Run rounds of both kinds once."""
    engine = PrunedEngine(features_of(case, 1000), PruningOptions.read({"budget": 0.3, "round_steps": 2}), seed=0)
    for batch in new_rows(8, case.bag):
        few = IdBatch(batch.ids % 1000, batch.offsets)
        engine.lookup(few)
        engine.apply_gradients(few, np.ones((_EVENTS, engine.width), np.float32))


def measure_whole(case: Case, steps: int, dense_ms: float) -> None:
    """Print the processor's seconds and the memory of tables with a budget by those of whole tables, for a stream with new rows, rounds included."""
    compile_rounds(case)
    budgets = (0.3, 0.5)
    sides: list[CpuEngine | PrunedEngine] = [CpuEngine(features_of(case, _ROWS), seed=0)]
    sides += [PrunedEngine(features_of(case, _ROWS), PruningOptions.read({"budget": one}), seed=0) for one in budgets]
    gradients = np.random.default_rng(0).standard_normal((_EVENTS, sides[0].width), np.float32)
    secs, served, newest = np.zeros(len(sides)), np.zeros(len(sides)), deque[IdBatch](maxlen=_BATCHES)
    for k, batch in enumerate(new_rows(2 * steps, case.bag)):
        newest.append(batch)
        if k == steps:  # places are full
            secs[:] = 0.0
        for side, engine in enumerate(sides):
            began = time.process_time()
            engine.lookup(batch)
            engine.apply_gradients(batch, gradients)
            secs[side] += time.process_time() - began
    for engine in sides[1:]:
        assert isinstance(engine, PrunedEngine)
        engine.freeze()
    for batch in itertools.islice(itertools.cycle(newest), steps):
        for side, engine in enumerate(sides):
            began = time.process_time()
            engine.lookup(batch)
            served[side] += time.process_time() - began
    whole = secs[0] / steps
    row_bytes = 4 * 2 * case.dim + 1
    for budget, own, lookup in zip(budgets, secs[1:], served[1:], strict=True):
        own_bytes = _ROWS * _TABLES * (budget * (row_bytes + 8) + 8 + 1 / 8)
        print(f"budget {budget:g}, {case.dim} columns, bags of {case.bag}: {whole * steps / own:.2f}x the steps of whole tables in a second of the processor "
              f"({1e3 * own / steps:.2f} and {1e3 * whole:.2f} ms), with a dense part of {dense_ms:g} ms {(whole + dense_ms / 1e3) / (own / steps + dense_ms / 1e3):.3f}x; "
              f"lookups of the newest batches that change nothing, as of a served model, {served[0] / lookup:.2f}x; "
              f"{own_bytes / (_ROWS * _TABLES * row_bytes):.2f}x the memory", flush=True)  # fmt: skip


@dataclass(slots=True)
class Monitored:
    """An engine, the processor's seconds of its steps, and of these those of its checks and rounds."""

    engine: PrunedEngine
    steps: float = 0.0
    monitor: float = 0.0

    def __post_init__(self) -> None:
        for name in ("_should_prune", "prune"):
            setattr(self.engine.rows, name, partial(self._timed, getattr(self.engine.rows, name)))

    def _timed(self, work: Callable[[], object]) -> object:
        began = time.process_time()
        found = work()
        self.monitor += time.process_time() - began
        return found

    def step(self, batch: IdBatch, gradients: Array) -> None:
        """Look a batch up and update its rows."""
        began = time.process_time()
        self.engine.lookup(batch)
        self.engine.apply_gradients(batch, gradients)
        self.steps += time.process_time() - began


def measure_monitor(steps: int, dense_ms: float) -> None:
    """Print what checks and rounds add to a step: as they are, and with rounds that look at all rows. Of the processor, whatever else it does."""
    case = Case(16, 1)
    compile_rounds(case)
    options = PruningOptions.read({"budget": _BUDGET})
    sides = [Monitored(PrunedEngine(features_of(case, _ROWS), options, seed=0)) for _ in range(2)]
    gradients, before = np.random.default_rng(0).standard_normal((_EVENTS, sides[0].engine.width), np.float32), 0
    for k, batch in enumerate(new_rows(2 * steps)):
        if k == steps:  # places are full
            before = sides[0].engine.rows.rounds
            for one in sides:
                one.steps = one.monitor = 0.0
        sides[1].engine.rows.candidates.forget()
        for one in sides:
            one.step(batch, gradients)
    rounds, texts = sides[0].engine.rows.rounds - before, []
    for name, one in zip(("as they are", "with rounds over all rows"), sides, strict=True):
        others = (one.steps - one.monitor) / steps + dense_ms / 1e3
        texts.append(f"{name} {1e3 * one.monitor / steps:.2f} ms a step, {one.monitor / steps / others:.2%} of the rest with a dense part of {dense_ms:g} ms")  # fmt: skip
    print(f"checks and rounds, {_TABLES} tables of {_ROWS:,} rows in one group, {rounds} rounds in {steps} steps, of the processor: {'; '.join(texts)}", flush=True)  # fmt: skip


def measure_small_groups(rounds: int) -> None:
    """Print the processor's seconds of steps with checks and rounds, and without, of tables that are each a small group of its own."""
    features = [
        FeatureSpec(f"t{k}", TableSpec(f"t{k}", _FEW_ROWS, 16, Adagrad(0.05, 0.1), "sum")) for k in range(_GROUPS)
    ]
    groups = [{"tables": [one.name], "rows": int(_FEW_ROWS * 0.3)} for one in features]
    draw, count = np.random.default_rng(0), _GROUPS * _FEW_EVENTS
    offsets = np.arange(_FEW_EVENTS + 1)[None] + np.arange(_GROUPS)[:, None] * _FEW_EVENTS
    batches = [
        IdBatch((draw.pareto(0.4, count) * 7).astype(np.int64) * 2_654_435_761 % _FEW_ROWS, offsets.astype(np.int64))
        for _ in range(_BATCHES)
    ]
    gradients = draw.standard_normal((_FEW_EVENTS, _GROUPS * 16), np.float32)
    engines = {
        checks: PrunedEngine(features, PruningOptions.read({"groups": groups, **_NEVER, "check_steps": checks}), seed=0)
        for checks in (1 << 31, 20)
    }
    found: dict[int, list[float]] = {checks: [] for checks in engines}
    for _ in range(rounds + 1):
        for checks, engine in engines.items():
            began = time.process_time()
            for _ in range(5):
                secs_of(engine, batches, gradients)
            found[checks].append((time.process_time() - began) / (5 * _BATCHES))
    without, with_checks = (1e3 * statistics.median(found[checks][1:]) for checks in engines)
    print(f"{_GROUPS} groups of {_FEW_ROWS} rows, {_FEW_EVENTS} events a step, a check every 20 steps: {with_checks:.2f} ms of the processor a step, "
          f"{without:.2f} ms without checks: {with_checks / without:.2f}x; {engines[20].rows.rounds} rounds in {engines[20].rows.step} steps", flush=True)  # fmt: skip


def main() -> None:
    """Print steps of several cases, then a round, then the checks of small groups."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=10_000_000, help="of the group that a round is timed for")
    parser.add_argument("--steps", type=int, default=400, help="of checks and rounds")
    parser.add_argument("--dense-ms", type=float, default=20.0, help="the dense part of a step")
    options = parser.parse_args()
    print(machine())
    for case in (Case(16, 1), Case(64, 1), Case(16, 10), Case(64, 10)):
        measure_steps(case, options.rounds, options.dense_ms)
    for case in (Case(16, 1), Case(64, 1), Case(16, 10)):
        measure_whole(case, options.steps // 2, options.dense_ms)
    measure_monitor(options.steps, options.dense_ms)
    measure_round(options.rows, options.rounds)
    measure_small_groups(options.rounds)


if __name__ == "__main__":
    main()
