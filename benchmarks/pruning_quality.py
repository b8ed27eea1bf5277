"""Normalised entropy with a part of the rows: tables pruned in training against whole tables, and against rows chosen before training.

    python -m benchmarks.pruning_quality --data FOLDER [--log globo|movielens] [--limit N] [--seeds 5] [--budgets 0.7 0.5 0.3]
                                         [--choices | --hosts N ...]

The log's articles, or movies, and users are not hashed: an input has a row for every id. A budget is a share of the rows of ids that the log has, not of the
vocabulary, most of which no event has. DLRM is trained in time order, with the same seeds on all sides:

- whole: all rows;
- pruned: the option ``pruning`` with the budget (AdaEmbed);
- frequent: as many rows, those that the trained events have most often, counted before training; other ids are read as zeros.

Lifetime entropy is that of events as they are trained, each predicted before; that of the next days is of the newest fifth of the partitions, by the trained
model. ``--choices`` trains the alternatives of each choice of pruning at one budget; ``--hosts`` divides the rows and their places over so many simulated hosts,
each of which prunes its own, and gives the lifetime entropy by that of one host.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from scipy.stats import ttest_rel

from benchmarks.support.harness import machine
from benchmarks.support.quality_logs import QualityLog
from benchmarks.support.quality_scene import QualityScene, quality_scene
from pipelines.formats import FormatOptions, prepare
from trainer.options.config import TrainConfig
from trainer.run.loop import TrainReport, train
from trainer.run.weights import run_state
from trainer.serving.trained import load_trained
from trainer.tables.routes.partitioned.engine import PartitionedEngine
from trainer.tables.routes.pruned_engine import PrunedEngine
from trainer.tables.spec import FeatureSpec
from transforms.expressions.expression import float32, int64, ragged
from transforms.expressions.model import Model

Array = np.ndarray[Any, np.dtype[Any]]

#: A side: its name, its options of pruning (None: whole tables), and whether its rows are the most frequent ones.
_NEVER = 1 << 31


@dataclass(frozen=True, slots=True)
class Side:
    """One way to train.

    Attributes:
        name: for the report.
        pruning: options beside the budget; None: whole tables.
        is_fixed: the rows are the most frequent ones, and stay.
    """

    name: str
    pruning: Mapping[str, Any] | None = None
    is_fixed: bool = False


WHOLE = Side("whole")
PRUNED = Side("pruned", {})
FREQUENT = Side("frequent", {"check_steps": _NEVER}, is_fixed=True)
#: The alternatives to each choice, by the choice.
CHOICES = {
    "metric": [Side("frequency alone", {"metric": "frequency"}), Side("gradient alone", {"metric": "gradient"}), Side("random", {"metric": "random"})],
    "normalisation": [Side("by the 95th percentile", {"normalised": True})],
    "reset": [Side("initial values", {"reset": "initial"}), Side("restored values", {"reset": "restored"}), Side("without reset", {"reset": "none"})],
    "spare": [Side("no place is spare", {"spare_share": 0.0}), Side("and 5 % cross, as the paper", {"spare_share": 0.0, "crossing_share": 0.05}), Side("a fifth is spare", {"spare_share": 0.2})],
    "timing": [Side("a round every 10 steps", {"round_steps": 10}), Side("a round every 100 steps", {"round_steps": 100})],
    "decay": [Side("without decay", {"decay": 1.0})],
}  # fmt: skip


def news_model() -> Model:
    """Clicks of Globo's articles, whose ids and those of users are not hashed."""
    made = Model("unhashed_news", client="pruning", label="clicked")
    articles, users = 365_000, 325_000
    made.input("article", int64("article_id").modulo(articles))
    made.input("last_article", int64("last_article_id").modulo(articles))
    made.input("history", ragged("history", "int64").modulo(articles))
    made.input("user", int64("user_id").modulo(users))
    for name in ("environment", "device_group", "region", "referrer_type"):
        made.input(name, int64(name).hash_buckets(100))
    made.input("age", float32("article_age_hours").fill_null(0.0).log1p().scale(0.4, -1.0))
    made.input("recent", int64("article_clicks_recent").cast("float32").log1p().scale(0.2, -1.0))
    made.input("last_hour", int64("article_clicks_last_hour").cast("float32").log1p().scale(0.25, -0.8))
    return made


def movie_model() -> Model:
    """Ratings of MovieLens-1M, whose ids are not hashed."""
    made = Model("unhashed_movies", client="pruning", label="clicked")
    movies, users = 4_000, 6_100
    made.input("movie", int64("movie_id").modulo(movies))
    made.input("last_movie", int64("last_movie_id").modulo(movies))
    made.input("history", ragged("history", "int64").modulo(movies))
    made.input("user", int64("user_id").modulo(users))
    made.input("genres", ragged("genres", "string").hash_buckets(100))
    for name in ("age", "occupation"):
        made.input(name, int64(name).hash_buckets(100))
    return made


def log_of(name: str, data: Path, limit: int | None = None) -> QualityLog:
    """A log of at most so many hours, or of so many users of MovieLens, and its model without hashed ids."""
    folder, model = {"globo": ("globo", news_model), "movielens": ("ml1m", movie_model)}[name]
    options = FormatOptions(limit=limit)

    def write(where: Path) -> object:
        return prepare(name, str(data / folder), str(where), replace(options, rejects=f"{where}.rejects"))

    return QualityLog(name, write, model, table=name)


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


def row_counts(scene: QualityScene) -> dict[str, Array]:
    """How often the trained events have each row of each table."""
    events = scene.trained
    return {
        name: np.bincount(ids, minlength=size)
        for name, size, ids in zip(events.names, events.buckets, events.ids, strict=True)
    }


class Trial:
    """Trains sides on one log; ``folder``: of their runs."""

    def __init__(self, scene: QualityScene, folder: Path) -> None:
        self._scene, self._folder = scene, folder
        self._counts = row_counts(scene)
        self.seen_rows = sum(int((one > 0).sum()) for one in self._counts.values())
        self.all_rows = sum(map(len, self._counts.values()))

    def run(self, side: Side, budget: float, seed: int) -> Outcome:
        """Train a side with a share of the rows that the log has."""
        scene, config = self._scene, self._config(side, budget, seed)
        with _fixed_rows(self._counts) if side.is_fixed else _as_they_are():
            report = train(scene.older, scene.read(scene.older), config)
        trained = load_trained(config.run_dir)
        newest = trained.evaluate(scene.newer, scene.read(scene.newer))
        engine = trained.weights.engine
        assert engine is not None
        rows = sum(len(one.rows) for one in engine.state().values())
        rounds = engine.rows.rounds if isinstance(engine, PrunedEngine) else 0
        return Outcome(lifetime_entropy(report), newest.normalized_entropy, rows, rounds)

    def run_on(self, hosts: int, budget: float, seed: int) -> Outcome:
        """Train pruned tables that are divided over hosts; the newest events are not tested."""
        scene = self._scene
        config = self._config(Side(f"on {hosts}", {}), budget, seed)
        with _on_hosts(hosts) as engines:
            report = train(scene.older, scene.read(scene.older), config)
        rows = sum(len(one.rows) for engine in engines for one in engine.state().values())
        return Outcome(lifetime_entropy(report), 0.0, rows, 0)

    def _config(self, side: Side, budget: float, seed: int) -> TrainConfig:
        run_dir = self._folder / f"{side.name}-{budget}-{seed}".replace(" ", "-")
        pruning = None if side.pruning is None else {"budget": budget * self.seen_rows / self.all_rows, **side.pruning}
        return TrainConfig(str(run_dir), network="dlrm", seed=seed, pruning=pruning, partitions_per_epoch=24, count_events=False, keep_checkpoints=1,
                             statistics_share=0.0, embedding_learning_rate=0.02, dense_learning_rate=0.001)  # fmt: skip


@contextmanager
def _as_they_are() -> Iterator[None]:
    yield


@contextmanager
def _on_hosts(hosts: int) -> Iterator[list[PartitionedEngine]]:
    """Engines whose rows are divided over simulated hosts; those that are made."""
    made: list[PartitionedEngine] = []

    def engine(features: Sequence[FeatureSpec], config: TrainConfig, *others: Any) -> Any:
        made.append(
            PartitionedEngine(features, seed=config.seed, cores=hosts, held=config.batches_held, pruning=config.pruning)
        )
        return made[-1]

    with mock.patch.object(run_state, "_engine_of", engine):
        yield made


def compare(name: str, one: Sequence[Outcome], other: Sequence[Outcome]) -> None:
    """Print the means of a side, and its differences from another one by seed."""
    texts = []
    for metric in ("lifetime", "next_days"):
        values, base = ([getattr(run, metric) for run in runs] for runs in (one, other))
        relative = [100 * (a / b - 1) for a, b in zip(values, base, strict=True)]
        p = float(ttest_rel(values, base).pvalue) if len(values) > 1 else float("nan")
        spread = statistics.stdev(relative) if len(relative) > 1 else 0.0
        texts.append(
            f"{metric.replace('_', ' ')} {statistics.mean(values):.5f}, {statistics.mean(relative):+.3f} % +- {spread:.3f} (p = {p:.3f})"
        )
    print(f"  {name:<28} {one[0].rows:>9,} rows, {one[0].rounds:>4,} rounds: {'; '.join(texts)}", flush=True)


def measure(trial: Trial, budgets: Sequence[float], seeds: int) -> None:
    """Print whole tables, and both ways to keep a share of the rows."""
    whole = [trial.run(WHOLE, 1.0, seed) for seed in range(seeds)]
    compare("whole tables", whole, whole)
    for budget in budgets:
        pruned = [trial.run(PRUNED, budget, seed) for seed in range(seeds)]
        frequent = [trial.run(FREQUENT, budget, seed) for seed in range(seeds)]
        compare(f"pruned to {budget:g}, by whole", pruned, whole)
        compare(f"frequent {budget:g}, by whole", frequent, whole)
        compare(f"pruned to {budget:g}, by frequent", pruned, frequent)


def measure_choices(trial: Trial, budget: float, seeds: int) -> None:
    """Print the alternatives of each choice at one budget."""
    ours = [trial.run(PRUNED, budget, seed) for seed in range(seeds)]
    compare(f"ours at {budget:g}", ours, ours)
    for choice, sides in CHOICES.items():
        for side in sides:
            compare(f"{choice}: {side.name}", [trial.run(side, budget, seed) for seed in range(seeds)], ours)


def measure_hosts(trial: Trial, budget: float, seeds: int, hosts: Sequence[int]) -> None:
    """Print pruned tables that are divided over hosts, by those of one."""
    one = [trial.run_on(1, budget, seed) for seed in range(seeds)]
    for count in hosts:
        found = one if count == 1 else [trial.run_on(count, budget, seed) for seed in range(seeds)]
        relative = [100 * (a.lifetime / b.lifetime - 1) for a, b in zip(found, one, strict=True)]
        spread = statistics.stdev(relative) if len(relative) > 1 else 0.0
        print(f"  {count:>3} hosts, to {budget:g}: {found[0].rows:,} rows, lifetime {statistics.mean([run.lifetime for run in found]):.5f}, "
              f"{statistics.mean(relative):+.3f} % +- {spread:.3f}", flush=True)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the comparison of one log."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--log", choices=("globo", "movielens"), default="globo")
    parser.add_argument("--limit", type=int, help="hours of Globo's log, or users of MovieLens; all by default")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--budgets", type=float, nargs="+", default=[0.7, 0.6, 0.5, 0.4, 0.3])
    parser.add_argument(
        "--choices", action="store_true", help="train the alternatives of each choice at the first budget"
    )
    parser.add_argument("--hosts", type=int, nargs="+", help="divide the rows over so many hosts, at the first budget")
    options = parser.parse_args(arguments)
    print(machine())
    log = log_of(options.log, options.data, options.limit)
    with tempfile.TemporaryDirectory() as folder, quality_scene(log, Path(folder)) as scene:
        trial = Trial(scene, Path(folder))
        print(
            f"{log.name}: {scene.older.rows:,} trained events, {scene.newer.rows:,} tested; {trial.seen_rows:,} rows of {trial.all_rows:,} occur"
        )
        if options.choices:
            measure_choices(trial, options.budgets[0], options.seeds)
        elif options.hosts:
            measure_hosts(trial, options.budgets[0], options.seeds, options.hosts)
        else:
            measure(trial, options.budgets, options.seeds)


if __name__ == "__main__":
    main()
