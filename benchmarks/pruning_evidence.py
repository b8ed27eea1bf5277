"""The evidence behind the defaults of pruning: which importance, how many spare places, when a round begins, with groups or without.

    python -m benchmarks.pruning_evidence --data FOLDER [--log globo|movielens|criteo|tail] [--limit N] [--seeds 3] [--budgets 0.5 0.3] [--batch-rows 256]
                                          [--metrics NAME ...] [--sides NAME ...] [--results FILE]

DLRM is trained in time order with the same seeds on all sides (see ``pruning_quality.py``). First, as in figure 7 of AdaEmbed: rows are trained whole, and the
importance that each metric has added up is correlated with the norm of the row's final embedding, by Pearson and by rank, table by table; and with the norm of
what training has changed, since a row that hardly occurs still has the norm of its random first values.

Then for each budget, a share of the rows that occur: normalised entropy of events as they are trained, each predicted before, and of the newest fifth of the
partitions, by that of whole tables; and the difference from the first side, by seed. Four sides are ablations:

- cut at the end: tables are trained whole, then their most important rows stay (pruning after training; it needs the memory of whole tables);
- a share for each table: no table lends places to another one;
- static: as many rows, those that the trained events have most often, for good; and those of the first fifth of these events, since the others are not known before.

``--results`` keeps each finished training in a file: a script that is started again trains the others only.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import pearsonr, spearmanr

from benchmarks.pruning_quality import FREQUENT, FREQUENT_AT_FIRST, Outcome, Side, Trial, open_trial
from benchmarks.support.comparisons import Comparisons
from benchmarks.support.pruning_logs import LOGS
from trainer.tables.routes.pruned_engine import PrunedEngine
from trainer.tables.stores.pruned.round import TableRows, select_rows

Array = np.ndarray[Any, np.dtype[Any]]

#: The metrics of importance that are compared.
METRICS = ("frequency_gradient", "gradient", "frequency")
#: A table of fewer rows has no correlation of its own.
_LEAST_ROWS = 100
#: The sides of a budget, each with the defaults but for what its name says; they are compared with the first one.
SIDES = (
    Side("the defaults", {"metric": "gradient", "spare_share": 0.05, "crossing_share": 0.01}),
    Side("frequency_gradient", {"metric": "frequency_gradient"}),
    Side("frequency", {"metric": "frequency"}),
    Side("spare 0.1", {"spare_share": 0.1}),
    Side("spare 0", {"spare_share": 0.0}),
    Side("crossing 0.05", {"crossing_share": 0.05}),
    Side("the paper's", {"metric": "frequency_gradient", "spare_share": 0.0, "crossing_share": 0.05}),
    replace(FREQUENT, name="static"),
    replace(FREQUENT_AT_FIRST, name="static, first fifth"),
)
#: No groups: each table has the budget's share of its own rows that occur.
_BY_TABLE = "a share for each table"


@dataclass(frozen=True, slots=True)
class Correlation:
    """How the importance of rows goes with the norms of their embeddings, of the rows that have any importance.

    Attributes:
        pearson: with the final norm, the mean of the tables by their rows; tables of few rows are left out.
        rank: the same by ranks.
        pooled_rank: by ranks over the rows of all tables together, as rounds compare them.
        changed_pearson, changed_rank: as the first two, with the norm of the difference from the first values.
    """

    pearson: float
    rank: float
    pooled_rank: float
    changed_pearson: float
    changed_rank: float


@dataclass(frozen=True, slots=True)
class WholeRun:
    """Tables trained whole: their outcome, the correlation of the importance, and the outcomes of cutting them, by budget."""

    outcome: Outcome
    correlation: Correlation
    cut: Mapping[float, Outcome]


def correlation_of(engine: PrunedEngine, least_rows: int = _LEAST_ROWS) -> Correlation:
    """The correlation of importance and norms in an engine whose rows all have places."""
    importance, norms, changes = [], [], []
    for t, (name, history) in enumerate(engine.rows.histories().items()):
        final = engine.weights_of(name, history.rows).astype(np.float64)
        importance.append(history.importance.astype(np.float64))
        norms.append(np.linalg.norm(final, axis=1))
        changes.append(np.linalg.norm(final - engine.rows.starts.initial(t, history.rows).weights, axis=1))
    large = [t for t, one in enumerate(importance) if len(one) >= least_rows]

    def mean(method: Callable[..., Any], values: Sequence[Array]) -> float:
        if not large:
            return float("nan")
        by_table = [method(importance[t], values[t]).statistic for t in large]
        return float(np.average(by_table, weights=[len(importance[t]) for t in large]))

    pooled = float(spearmanr(np.concatenate(importance), np.concatenate(norms)).statistic)
    return Correlation(
        mean(pearsonr, norms), mean(spearmanr, norms), pooled, mean(pearsonr, changes), mean(spearmanr, changes)
    )


def cut_rows(engine: PrunedEngine, share: float) -> int:
    """Take the places of all but the most important rows, a share of those that have any importance; returns how many stay."""
    rows, stay = engine.rows, 0
    rows.importance.gather()
    for group in rows.groups:
        tables = [TableRows(t, rows.importance.of_table(t), rows.addresses.of_table(t)) for t in group.tables]
        kept = int(share * sum(int((one.importance > 0).sum()) for one in tables))
        changes = select_rows(tables, [rows.importance.scale(one.importance) for one in tables], kept, rows.team)
        for t, change in zip(group.tables, changes, strict=True):
            rows.addresses.release(t, change.leaving)
        stay += kept
    engine.freeze()
    return stay


def train_whole(trial: Trial, metric: str, budgets: Sequence[float], seed: int) -> WholeRun:
    """Train whole tables whose importance is noted, then cut them to each budget, the largest first."""
    side, descending = Side(f"whole-{metric}", {"metric": metric, "budget": 1.0}), sorted(budgets, reverse=True)

    def train_and_cut() -> dict[str, Any]:
        outcome, trained = trial.run_and_load(side, 1.0, seed)
        engine = trained.weights.engine
        assert isinstance(engine, PrunedEngine)
        correlation, cut = correlation_of(engine), []
        for budget in descending:
            rows = cut_rows(engine, budget)
            cut.append(asdict(Outcome(outcome.lifetime, trial.next_days(trained), rows, 0)))
        return {"outcome": asdict(outcome), "correlation": asdict(correlation), "cut": cut}

    found = trial.kept.get({**trial.key(side, 1.0, seed), "cut": descending}, train_and_cut)
    cut = {budget: Outcome(**one) for budget, one in zip(descending, found["cut"], strict=True)}
    return WholeRun(Outcome(**found["outcome"]), Correlation(**found["correlation"]), cut)


def side_by_table(trial: Trial, budget: float) -> Side:
    """No groups: each table has the budget's share of its own rows that occur."""
    groups = [{"tables": [name], "rows": max(1, int(budget * seen))} for name, seen in trial.seen_by_table.items()]
    return Side(_BY_TABLE, {"groups": groups})


def difference(
    comparisons: Comparisons, name: str, one: Sequence[Outcome], other: Sequence[Outcome], metric: str
) -> str:
    """The mean relative difference of a metric, its standard deviation, and the p of a paired t-test, which counts among ``comparisons``."""
    values, base = ([getattr(run, metric) for run in runs] for runs in (one, other))
    relative = [100 * (a / b - 1) for a, b in zip(values, base, strict=True)]
    if not any(relative):
        return "0"
    spread = statistics.stdev(relative) if len(relative) > 1 else 0.0
    p = comparisons.chance(name, values, base)
    return f"{statistics.mean(relative):+.3f} +- {spread:.3f} (p {p:.3f})"


def report(
    comparisons: Comparisons,
    budget: float,
    name: str,
    runs: Sequence[Outcome],
    whole: Sequence[Outcome],
    first: Sequence[Outcome],
) -> None:
    """Print a side: its entropy by that of whole tables, and by that of the first side, in percent."""

    def by(other: str, base: Sequence[Outcome], metric: str) -> str:
        comparison = f"{name} to {budget:g} by {other}, {metric.replace('_', ' ')}"
        return f"{difference(comparisons, comparison, runs, base, metric)} by {other}"

    texts = [
        f"{metric.replace('_', ' ')} {by('whole', whole, metric)}, {by('the first', first, metric)}"
        for metric in ("lifetime", "next_days")
    ]
    print(f"  {name:<28} {runs[0].rows:>8,} rows {runs[0].rounds:>3} rounds: {'; '.join(texts)}", flush=True)


def measure(trial: Trial, budgets: Sequence[float], seeds: int, metrics: Sequence[str], names: Sequence[str]) -> None:
    """Print figure 7 for some metrics, then the sides of each budget that have these ``names``; all without any."""
    by_metric: dict[str, list[WholeRun]] = {}
    for metric in metrics:
        by_metric[metric] = [train_whole(trial, metric, budgets, seed) for seed in range(seeds)]
        texts = []
        for name in Correlation.__slots__:
            values = [getattr(one.correlation, name) for one in by_metric[metric]]
            texts.append(
                f"{name.replace('_', ' ')} {statistics.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})"
            )
        print(f"  importance by {metric:<20} with the final norm: {', '.join(texts)}", flush=True)
    whole = [one.outcome for one in by_metric[metrics[0]]]
    print(f"  whole tables: lifetime {statistics.mean(one.lifetime for one in whole):.5f}, next days {statistics.mean(one.next_days for one in whole):.5f}")  # fmt: skip
    comparisons = Comparisons()
    for budget in budgets:
        print(f" budget {budget:g}")
        first: list[Outcome] = []
        for side in (*SIDES, side_by_table(trial, budget)):
            if names and side.name not in names:
                continue
            runs = [trial.run(side, budget, seed) for seed in range(seeds)]
            first = first or runs
            report(comparisons, budget, side.name, runs, whole, first)
        for metric in metrics:
            report(
                comparisons,
                budget,
                f"cut at the end, {metric}",
                [one.cut[budget] for one in by_metric[metric]],
                whole,
                first,
            )
    print(f"  {comparisons.summary}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the evidence of one log."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of the logs; the planted one needs none")
    parser.add_argument("--log", choices=LOGS, default="tail")
    parser.add_argument(
        "--limit", type=int, help="hours of Globo's log, users of MovieLens, rows of the others; all by default"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budgets", type=float, nargs="+", default=[0.5, 0.3])
    parser.add_argument(
        "--batch-rows", type=int, default=256, help="events of a step: few, so that a small log has many"
    )
    parser.add_argument(
        "--metrics", choices=METRICS, nargs="+", default=METRICS, help="that tables are trained whole with"
    )
    parser.add_argument(
        "--sides", nargs="+", default=(), choices=[*(side.name for side in SIDES), _BY_TABLE], help="all by default"
    )
    parser.add_argument("--results", type=Path, help="a file that keeps finished trainings")
    options = parser.parse_args(arguments)
    with open_trial(options.log, options.data, options.limit, options.batch_rows, options.results) as trial:
        measure(trial, options.budgets, options.seeds, options.metrics, options.sides)


if __name__ == "__main__":
    main()
