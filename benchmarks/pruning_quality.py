"""Normalised entropy with a part of the rows: tables pruned in training against whole tables, and against rows chosen before training.

    python -m benchmarks.pruning_quality --data FOLDER [--log globo|movielens|criteo|tail] [--limit N] [--seeds 5] [--budgets 0.7 0.5 0.3]
                                         [--choices | --hosts N ...] [--results FILE]

The log's articles, or movies, and users are not hashed: an input has a row for every id. A budget is a share of the rows of ids that the log has, not of the
vocabulary, most of which no event has. DLRM is trained in time order, with the same seeds on all sides:

- whole: all rows;
- pruned: the option ``pruning`` with the budget (AdaEmbed);
- frequent: as many rows, those that the trained events have most often, counted before training; other ids are read as zeros. It knows the events that are to come.
- frequent at first: the same, counted over the first fifth of these events only.

Lifetime entropy is that of events as they are trained, each predicted before; that of the next days is of the newest fifth of the partitions, by the trained
model. ``--choices`` trains the alternatives of each choice of pruning at one budget; ``--hosts`` divides the rows and their places over so many simulated hosts,
each of which prunes its own, and gives the lifetime entropy by that of one host. ``--results`` keeps each finished training of the other two in a file: a script that is
started again trains the others only.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.support.comparisons import Comparisons
from benchmarks.support.harness import machine
from benchmarks.support.kept_results import KeptResults, training_key
from benchmarks.support.pruning_logs import LOGS, log_of
from benchmarks.support.quality_scene import QualityScene, quality_scene
from trainer.options.config import TrainConfig
from trainer.planning.plan import PartitionPlan
from trainer.run.loop import TrainReport, train
from trainer.run.weights import run_state
from trainer.serving.trained import Trained, load_trained
from trainer.tables.routes.partitioned.engine import PartitionedEngine
from trainer.tables.routes.pruned_engine import PrunedEngine
from trainer.tables.spec import FeatureSpec, TableSpec, tables_of

Array = np.ndarray[Any, np.dtype[Any]]

#: The plan of simulated hosts for tables.
PlanOf = Callable[[Sequence[TableSpec]], PartitionPlan]
_NEVER = {"check_steps": 1 << 31}


@dataclass(frozen=True, slots=True)
class Side:
    """One way to train.

    Attributes:
        name: for the report.
        pruning: options beside the budget; None: whole tables.
        counted_share: the rows are the most frequent ones of this first share of the trained events, and stay; 0: pruning chooses them.
    """

    name: str
    pruning: Mapping[str, Any] | None = None
    counted_share: float = 0.0


WHOLE = Side("whole")
PRUNED = Side("pruned", {})
FREQUENT = Side("frequent", _NEVER, counted_share=1.0)
FREQUENT_AT_FIRST = Side("frequent at first", _NEVER, counted_share=0.2)
#: The alternatives to each choice, by the choice.
CHOICES = {
    "metric": [Side("frequency alone", {"metric": "frequency"}), Side("frequency times gradient", {"metric": "frequency_gradient"}), Side("random", {"metric": "random"})],
    "normalisation": [Side("by the 95th percentile", {"normalised": True})],
    "reset": [Side("initial values", {"reset": "initial"}), Side("restored values", {"reset": "restored"}), Side("without reset", {"reset": "none"})],
    "spare": [Side("no place is spare", {"spare_share": 0.0}), Side("and 5 % cross, as the paper", {"spare_share": 0.0, "crossing_share": 0.05}), Side("a tenth is spare", {"spare_share": 0.1}), Side("a fifth is spare", {"spare_share": 0.2})],
    "timing": [Side("a round every 10 steps", {"round_steps": 10}), Side("a round every 100 steps", {"round_steps": 100})],
    "decay": [Side("without decay", {"decay": 1.0})],
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """Normalised entropy as events are trained, and on the newest ones; the rows that were kept, and rounds."""

    lifetime: float
    next_days: float
    rows: int
    rounds: int


def lifetime_entropy(report: TrainReport) -> float:
    """The normalised entropy of all epochs together."""
    events = np.array([one.scores.events for one in report.history], np.float64)
    loss = float((events * np.array([one.scores.log_loss for one in report.history])).sum() / events.sum())
    rate = float(sum(one.scores.positives for one in report.history) / events.sum())
    return loss / -(rate * np.log(rate) + (1 - rate) * np.log1p(-rate))


@contextmanager
def _fixed_rows(counts: Mapping[str, Array]) -> Iterator[None]:
    """Engines whose places belong to the most frequent rows of all tables, for good."""
    made = run_state._engine_of

    def engine(features: Sequence[FeatureSpec], *others: Any) -> Any:
        found = made(features, *others)
        assert isinstance(found, PrunedEngine)
        give_places(found, counts)
        return found

    with mock.patch.object(run_state, "_engine_of", engine):
        yield


def give_places(engine: PrunedEngine, counts: Mapping[str, Array]) -> None:
    """Give the places of an engine to the rows with the highest counts."""
    for group in engine.rows.groups:
        names = [engine.tables[t].name for t in group.tables]
        every = np.concatenate([counts[name] for name in names])
        kept = np.sort(np.argsort(-every, kind="stable")[: min(group.rows, int((every > 0).sum()))])
        ends = np.cumsum([len(counts[name]) for name in names])
        for t, first, stop in zip(group.tables, ends - [len(counts[name]) for name in names], ends, strict=True):
            engine.rows.place_new(t, kept[(kept >= first) & (kept < stop)] - first)
    engine.freeze()


def row_counts(scene: QualityScene, share: float = 1.0) -> dict[str, Array]:
    """How often the first share of the trained events has each row of each table."""
    events = scene.trained.take(0, round(share * scene.trained.rows))
    return {
        name: np.bincount(ids, minlength=size)
        for name, size, ids in zip(events.names, events.buckets, events.ids, strict=True)
    }


class Trial:
    """Trains sides on one log; ``folder``: of their runs; ``batch_rows``: events of a step; ``name``: of the log, in ``kept``."""

    def __init__(
        self, scene: QualityScene, folder: Path, batch_rows: int = 1024, name: str = "", kept: KeptResults | None = None
    ) -> None:
        self._scene, self._folder, self._batch_rows = scene, folder, batch_rows
        self._name, self.kept = name, kept or KeptResults()
        counts = row_counts(scene)
        self.seen_by_table = {name: int((one > 0).sum()) for name, one in counts.items()}
        self.seen_rows = sum(self.seen_by_table.values())
        self.all_rows = sum(map(len, counts.values()))

    def key(self, side: Side, budget: float, seed: int) -> dict[str, object]:
        """What the outcome of a side depends on."""
        events = (self._scene.older.rows, self._scene.newer.rows)
        return {**training_key(self._name, self._config(side, budget, seed), *events), "counted": side.counted_share}

    def run(self, side: Side, budget: float, seed: int) -> Outcome:
        """Train a side with a share of the rows that the log has."""
        return Outcome(**self.kept.get(self.key(side, budget, seed), lambda: asdict(self.run_and_load(side, budget, seed)[0])))  # fmt: skip

    def run_and_load(self, side: Side, budget: float, seed: int) -> tuple[Outcome, Trained]:
        """As :meth:`run`, and the trained model."""
        scene, config = self._scene, self._config(side, budget, seed)
        with _fixed_rows(row_counts(scene, side.counted_share)) if side.counted_share else _as_they_are():
            report = train(scene.older, scene.read(scene.older), config)
        trained = load_trained(config.run_dir)
        engine = trained.weights.engine
        assert engine is not None
        rows = sum(len(one.rows) for one in engine.state().values())
        rounds = engine.rows.rounds if isinstance(engine, PrunedEngine) else 0
        return Outcome(lifetime_entropy(report), self.next_days(trained), rows, rounds), trained

    def next_days(self, trained: Trained) -> float:
        """The normalised entropy of the newest events."""
        return trained.evaluate(self._scene.newer, self._scene.read(self._scene.newer)).normalized_entropy

    def run_on(self, hosts: int, budget: float, seed: int) -> Outcome:
        """Train pruned tables that are divided over hosts; the newest events are not tested."""
        found, kept = self.run_placed(Side(f"on {hosts}", {"places": "divided"}), budget, seed, hosts)
        return Outcome(found.lifetime, 0.0, sum(map(len, kept.values())), 0)

    def run_placed(
        self, side: Side, budget: float, seed: int, hosts: int, plan_of: PlanOf | None = None
    ) -> tuple[Outcome, dict[str, Array]]:
        """As :meth:`run` on simulated hosts, and the rows that each table has kept; ``plan_of``: gives their plan for the tables, None: by remainders."""
        scene, config = self._scene, self._config(side, budget, seed)
        with _on_hosts(hosts, plan_of) as engines:
            report = train(scene.older, scene.read(scene.older), config)
        kept = {name: one.rows for engine in engines for name, one in engine.state().items()}
        rows = sum(map(len, kept.values()))
        return Outcome(lifetime_entropy(report), self.next_days(load_trained(config.run_dir)), rows, 0), kept

    def _config(self, side: Side, budget: float, seed: int) -> TrainConfig:
        run_dir = self._folder / f"{side.name}-{budget}-{seed}".replace(" ", "-")
        pruning = None if side.pruning is None else {"budget": budget * self.seen_rows / self.all_rows, **side.pruning}
        return TrainConfig(str(run_dir), network="dlrm", seed=seed, batch_rows=self._batch_rows, pruning=pruning, partitions_per_epoch=24, count_events=False, keep_checkpoints=1,
                             statistics_share=0.0, embedding_learning_rate=0.02, dense_learning_rate=0.001)  # fmt: skip


@contextmanager
def _as_they_are() -> Iterator[None]:
    yield


@contextmanager
def _on_hosts(hosts: int, plan_of: PlanOf | None = None) -> Iterator[list[PartitionedEngine]]:
    """Engines whose rows are divided over simulated hosts; those that are made."""
    made: list[PartitionedEngine] = []

    def engine(features: Sequence[FeatureSpec], config: TrainConfig, *others: Any) -> Any:
        plan = None if plan_of is None else plan_of(tables_of(features))
        made.append(PartitionedEngine(features, seed=config.seed, cores=hosts, plan=plan, held=config.batches_held, pruning=config.pruning))  # fmt: skip
        return made[-1]

    with mock.patch.object(run_state, "_engine_of", engine):
        yield made


def compare(comparisons: Comparisons, name: str, one: Sequence[Outcome], other: Sequence[Outcome]) -> None:
    """Print the means of a side, and its differences from another one by seed, which count among ``comparisons``."""
    texts = []
    for metric in ("lifetime", "next_days"):
        values, base = ([getattr(run, metric) for run in runs] for runs in (one, other))
        relative = [100 * (a / b - 1) for a, b in zip(values, base, strict=True)]
        p = comparisons.chance(f"{name}, {metric.replace('_', ' ')}", values, base)
        spread = statistics.stdev(relative) if len(relative) > 1 else 0.0
        texts.append(
            f"{metric.replace('_', ' ')} {statistics.mean(values):.5f}, {statistics.mean(relative):+.3f} % +- {spread:.3f} (p = {p:.3f})"
        )
    print(f"  {name:<28} {one[0].rows:>9,} rows, {one[0].rounds:>4,} rounds: {'; '.join(texts)}", flush=True)


def measure(trial: Trial, budgets: Sequence[float], seeds: int) -> None:
    """Print whole tables, and both ways to keep a share of the rows."""
    whole = [trial.run(WHOLE, 1.0, seed) for seed in range(seeds)]
    comparisons = Comparisons()
    compare(comparisons, "whole tables", whole, whole)
    for budget in budgets:
        pruned = [trial.run(PRUNED, budget, seed) for seed in range(seeds)]
        frequent = [trial.run(FREQUENT, budget, seed) for seed in range(seeds)]
        at_first = [trial.run(FREQUENT_AT_FIRST, budget, seed) for seed in range(seeds)]
        compare(comparisons, f"pruned to {budget:g}, by whole", pruned, whole)
        compare(comparisons, f"frequent {budget:g}, by whole", frequent, whole)
        compare(comparisons, f"frequent at first {budget:g}, by whole", at_first, whole)
        compare(comparisons, f"pruned to {budget:g}, by frequent", pruned, frequent)
        compare(comparisons, f"pruned to {budget:g}, by frequent at first", pruned, at_first)
    print(f"  {comparisons.summary}", flush=True)


def measure_choices(trial: Trial, budget: float, seeds: int) -> None:
    """Print the alternatives of each choice at one budget."""
    ours = [trial.run(PRUNED, budget, seed) for seed in range(seeds)]
    comparisons = Comparisons()
    compare(comparisons, f"ours at {budget:g}", ours, ours)
    for choice, sides in CHOICES.items():
        for side in sides:
            runs = [trial.run(side, budget, seed) for seed in range(seeds)]
            compare(comparisons, f"{choice}: {side.name}", runs, ours)
    print(f"  {comparisons.summary}", flush=True)


def measure_hosts(trial: Trial, budget: float, seeds: int, hosts: Sequence[int]) -> None:
    """Print pruned tables that are divided over hosts, by those of one."""
    one = [trial.run_on(1, budget, seed) for seed in range(seeds)]
    for count in hosts:
        found = one if count == 1 else [trial.run_on(count, budget, seed) for seed in range(seeds)]
        relative = [100 * (a.lifetime / b.lifetime - 1) for a, b in zip(found, one, strict=True)]
        spread = statistics.stdev(relative) if len(relative) > 1 else 0.0
        print(f"  {count:>3} hosts, to {budget:g}: {found[0].rows:,} rows, lifetime {statistics.mean([run.lifetime for run in found]):.5f}, "
              f"{statistics.mean(relative):+.3f} % +- {spread:.3f}", flush=True)  # fmt: skip


@contextmanager
def open_trial(
    name: str, data: Path | None, limit: int | None, batch_rows: int = 1024, results: Path | None = None
) -> Iterator[Trial]:
    """A trial on one log; the machine and the log are printed before it."""
    print(machine())
    log = log_of(name, data, limit)
    with tempfile.TemporaryDirectory() as folder, quality_scene(log, Path(folder)) as scene:
        trial = Trial(scene, Path(folder), batch_rows, name, KeptResults(results))
        print(
            f"{log.name}: {scene.older.rows:,} trained events, {scene.newer.rows:,} tested; {trial.seen_rows:,} rows of {trial.all_rows:,} occur"
        )
        yield trial


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the comparison of one log."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--log", choices=LOGS, default="globo")
    parser.add_argument("--limit", type=int, help="hours of Globo's log, or users of MovieLens; all by default")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--budgets", type=float, nargs="+", default=[0.7, 0.6, 0.5, 0.4, 0.3])
    parser.add_argument(
        "--choices", action="store_true", help="train the alternatives of each choice at the first budget"
    )
    parser.add_argument("--hosts", type=int, nargs="+", help="divide the rows over so many hosts, at the first budget")
    parser.add_argument("--results", type=Path, help="a file that keeps finished trainings")
    options = parser.parse_args(arguments)
    with open_trial(options.log, options.data, options.limit, results=options.results) as trial:
        if options.choices:
            measure_choices(trial, options.budgets[0], options.seeds)
        elif options.hosts:
            measure_hosts(trial, options.budgets[0], options.seeds, options.hosts)
        else:
            measure(trial, options.budgets, options.seeds)


if __name__ == "__main__":
    main()
