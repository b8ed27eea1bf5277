"""Cache hit ratio over a simulated year of model churn, by week and by admission policy.

    python -m benchmarks.model_churn [--days 365] [--seed 5] [--policies all adaptive none] [--storage-price 1] [--small]

Models are cloned, edited by one feature and retired, and new hours of data arrive every day (`benchmarks/support/churn.py`
states the assumptions). The catalog is real (SQLite), as are registering, submitting, queueing, leasing, committing,
retiring and solving. Memo files are simulated: their bytes, and the seconds of computing and reading, are estimates of the
cost model. Each file of the log holds a few rows and counts as an hour of a million.

A *request* is one input of a model over one fragment: of new data by every live model, and of all kept data by a new model.
It is a *hit* if the memo is loaded and was computed for an earlier request; the first request of a memo is a miss, and a
request without a memo is always a miss. *Recomputed* are the CPU seconds of computing inputs while reading, *computed*
those of computing and writing memos. `benchmarks/storage_prices.py` replays the same year without a catalog, over many prices.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import Connection, func, select, update

from benchmarks.support.churn import Born, ChurnConfig, Day, churn, readers_a_component
from benchmarks.support.harness import machine
from benchmarks.support.scale_models import COLUMNS, model
from transforms.expressions.model import Model
from transforms.graphs.graph import Node, RawColumn, component_from_document
from warehouse import (
    LeasedTask,
    MemoWritten,
    Warehouse,
    WarehouseConfig,
    commit_memos,
    lease_tasks,
    queue_missing,
    register_table,
    settle_storage,
    submit_model,
)
from warehouse.catalog import schema
from warehouse.costs.cost_model import CostModel
from warehouse.costs.reuse import ReadCosts, record_read
from warehouse.files.column_files import NewFile
from warehouse.files.memo_file import memo_path
from warehouse.matching.solve import priced_solution
from warehouse.memos.coverage import find_coverage
from warehouse.models.merged_graph import MergedGraph
from warehouse.models.models import get_model
from warehouse.models.retire import retire_model
from warehouse.planning.forecast import DAY_SECS
from warehouse.planning.policy import policy_named
from warehouse.planning.rates import LIST_PRICES, Prices
from warehouse.scheduling.task_states import MemoState
from warehouse.tables.manifests import PlacedFragment, current_fragments

TARGET = 0.95
TABLE = "events"
START = datetime(2026, 1, 1, tzinfo=UTC)
POLICIES = ("all", "adaptive", "none")
#: The assumed rows of an hour of the log.
HOUR_ROWS, HOUR_BYTES = 1_000_000, 200_000_000
#: The interval in days at which the reading of all live models is priced; the work is the same each day. Reads of models
#: whose policy weighs costs are priced every day, since the warehouse records these prices.
PRICED_DAYS = 28


def prices_at(storage_price: float) -> Prices:
    """List prices, with storage at this factor."""
    return replace(LIST_PRICES, byte_month=LIST_PRICES.byte_month * storage_price)


class Estimates:
    """The cost model's estimates for unmeasured components: CPU seconds and bytes per row."""

    def __init__(self) -> None:
        self.costs = CostModel(fragment_rows=HOUR_ROWS)
        self._roots: dict[str, Node] = {}
        self._together: dict[frozenset[str], float] = {}

    def root(self, task: LeasedTask) -> Node:
        """The component of a task."""
        if task.fingerprint not in self._roots:
            self._roots[task.fingerprint] = component_from_document(task.component)
        return self._roots[task.fingerprint]

    def alone_secs(self, root: Node) -> float:
        """Seconds of computing one component from raw columns in memory."""
        return self._compute_secs([root])

    def together_secs(self, roots: Sequence[Node]) -> float:
        """Seconds of reading raw columns once, computing every node once and writing all memos."""
        key = frozenset(root.identity for root in roots)
        if key not in self._together:
            costs = [self.costs.node_cost(root, ready=False, keepable=True) for root in roots]
            stored = sum(self.costs.stored_bytes(root) for root in roots) * LIST_PRICES.storage_secs(
                self.costs.horizon_days
            )
            raw = [node for node in MergedGraph(tuple(roots)).nodes if isinstance(node, RawColumn)]
            reading = sum(self.costs.node_cost(node, ready=True, keepable=False).load_secs or 0.0 for node in raw)
            writing = sum(cost.keep_secs for cost in costs) - stored
            self._together[key] = reading + self._compute_secs(roots) + writing
        return self._together[key]

    def load_secs(self, root: Node) -> float:
        """Seconds of reading the memo."""
        return self.costs.node_cost(root, ready=True, keepable=False).load_secs or 0.0

    def _compute_secs(self, roots: Sequence[Node]) -> float:
        nodes = MergedGraph(tuple(roots)).nodes
        return sum(self.costs.compute_secs(node) for node in nodes if not isinstance(node, RawColumn))


@dataclass(slots=True)
class Week:
    """The requests of a week. ``requests`` and ``hits`` are (input, fragment) pairs."""

    requests: int = 0
    hits: int = 0

    @property
    def hit_rate(self) -> float:
        return self.hits / self.requests if self.requests else 0.0


@dataclass(slots=True)
class Outcome:
    """A year under one policy. Seconds are CPU seconds by the cost model."""

    policy: str
    weeks: list[Week] = field(default_factory=list)
    memos: int = 0
    stored_bytes: int = 0
    computed_secs: float = 0.0
    recomputed_secs: float = 0.0
    loading_secs: float = 0.0
    byte_months: float = 0.0
    wall_secs: float = 0.0
    prices: Prices = LIST_PRICES

    def after_first_week(self) -> Week:
        rest = self.weeks[1:] or self.weeks
        return Week(sum(week.requests for week in rest), sum(week.hits for week in rest))

    @property
    def total_secs(self) -> float:
        """All CPU seconds, and the cost of storage in CPU seconds."""
        stored = self.byte_months * self.prices.storage_secs(30.0)
        return self.computed_secs + self.recomputed_secs + self.loading_secs + stored


class _Clock:
    def __init__(self) -> None:
        self.now = START.timestamp()

    def __call__(self) -> float:
        return self.now


class Year:
    """One policy's year, day by day."""

    def __init__(
        self, config: ChurnConfig, policy: str, folder: Path, storage_price: float = 1.0, priced_days: int = PRICED_DAYS
    ) -> None:
        self.config, self.policy, self.log = config, policy, folder / "log"
        self.clock = _Clock()
        prices = prices_at(storage_price)
        home = WarehouseConfig(str(folder / "home"), lease_secs=DAY_SECS, prices=prices)
        self.warehouse = Warehouse.open(home, self.clock)
        self.outcome = Outcome(policy, prices=prices)
        self.weighs_costs = policy_named(policy).weighs_costs
        self.priced_days = 1 if self.weighs_costs else priced_days
        self.live: dict[str, Model] = {}
        self.estimates = Estimates()
        self.kept_bytes: Counter[str] = Counter()  # of memos, by partition

    def run(self, days: Sequence[Day]) -> Outcome:
        begun = time.perf_counter()
        with self.warehouse:
            for number, day in enumerate(days):
                self.clock.now = (START + timedelta(days=number)).timestamp()
                if number % 7 == 0:
                    self.outcome.weeks.append(Week())
                self._day(number, day)
            self.outcome.memos = self._ready_memos()
            self.outcome.stored_bytes = self.kept_bytes.total()
        self.outcome.wall_secs = time.perf_counter() - begun
        return self.outcome

    def _day(self, number: int, day: Day) -> None:
        if settle_storage(self.warehouse).dropped:
            self._count_bytes()
        new = self._data_arrives(number)
        for name in self.live:
            queue_missing(self.warehouse, name)
        computed = self._work()
        self._count(self.live, new, computed)
        begin = START + timedelta(days=number)
        for name in self.live:
            priced = number % self.priced_days == 0
            costs = self._price(name, self.priced_days, begin) if priced else ReadCosts()
            self._note_read(name, begin, costs)
        for name in day.retired:
            retire_model(self.warehouse, name)
            del self.live[name]
        for born in day.born:
            self._born(born)
        self.outcome.byte_months += self.kept_bytes.total() / 30.0

    def _data_arrives(self, number: int) -> tuple[PlacedFragment, ...]:
        """The new hours, registered; their fragments."""
        for hour in range(self.config.hours_a_day):
            _write_hour(self.log, number, hour)
        self._drop_day(number - self.config.kept_days)
        register_table(self.warehouse, TABLE, str(self.log))
        of = schema.fragments.c

        def grow(connection: Connection) -> None:
            connection.execute(
                update(schema.fragments).where(of.rows < HOUR_ROWS).values(rows=HOUR_ROWS, size_bytes=HOUR_BYTES)
            )

        self.warehouse.catalog.run(grow, idempotent=True)
        with self.warehouse.catalog.read() as connection:
            return current_fragments(connection, TABLE, START + timedelta(days=number), None)

    def _drop_day(self, number: int) -> None:
        """Delete the log of a day and its memos."""
        if number >= 0:
            day = f"date={START + timedelta(days=number):%Y-%m-%d}"
            shutil.rmtree(self.log / day)
            for partition in [one for one in self.kept_bytes if one.startswith(day)]:
                del self.kept_bytes[partition]

    def _born(self, born: Born) -> None:
        made = self.live[born.name] = model(born.name, born.components, TABLE)
        submit_model(self.warehouse, made, policy=self.policy)
        computed = self._work()
        with self.warehouse.catalog.read() as connection:
            fragments = current_fragments(connection, TABLE)
        self._count({born.name: made}, fragments, computed)
        self._note_read(born.name, None, self._price(born.name, 1, None))

    def _work(self) -> dict[str, int]:
        """Simulate all tasks; return how often each component was computed."""
        counted: defaultdict[str, int] = defaultdict(int)
        while tasks := lease_tasks(self.warehouse, "worker", limit=5_000):
            written = []
            for group in _by_fragment(tasks):
                written += zip(group, self._written(group), strict=True)
                for task in group:
                    counted[task.fingerprint] += 1
            assert all(commit_memos(self.warehouse, written))
            for task, memo in written:
                self.kept_bytes[task.partition] += memo.size_bytes
        return dict(counted)

    def _written(self, group: Sequence[LeasedTask]) -> list[MemoWritten]:
        """The memos of the file that a worker would write. Computing them together costs each node once."""
        first, rows = group[0], group[0].fragment.rows
        roots = [self.estimates.root(task) for task in group]
        self.outcome.computed_secs += self.estimates.together_secs(roots) * rows
        path = memo_path(
            first.table, first.partition, first.fragment.fragment_id, [t.memo_key for t in group], first.lease
        )
        sizes = [round(self.estimates.costs.stored_bytes(root) * rows) for root in roots]
        file = NewFile(path, "0" * 64, rows, sum(sizes))
        return [MemoWritten(file, rows, size_bytes, self.estimates.alone_secs(root) * rows)
                for root, size_bytes in zip(roots, sizes, strict=True)]  # fmt: skip

    def _count(
        self, models: Mapping[str, Model], fragments: tuple[PlacedFragment, ...], computed: Mapping[str, int]
    ) -> None:
        """Count requests and hits, after all kept memos are computed."""
        week = self.outcome.weeks[-1]
        wanted = {item.fingerprint: item.component for one in models.values() for item in one.inputs.values()}
        if not wanted:
            return
        graph = MergedGraph(tuple(wanted.values()))
        with self.warehouse.catalog.read() as connection:
            coverage = find_coverage(connection, graph.columns(graph.components), fragments)
        inputs = [{item.fingerprint for item in one.inputs.values()} for one in models.values()]
        for layout, times in zip(coverage.layouts, coverage.fragments_by_layout, strict=True):
            week.requests += times * sum(map(len, inputs))
            week.hits += times * sum(len(asked & layout.slots.keys()) for asked in inputs)
        week.hits -= sum(times for fingerprint, times in computed.items() if fingerprint in wanted)

    def _price(self, name: str, days: int, begin: datetime | None) -> ReadCosts:
        """Add the cost of the model's reading from ``begin`` on, times ``days``."""
        solution, costs = priced_solution(self.warehouse, name, start=begin)
        graph = MergedGraph(tuple(item.component for item in self.live[name].inputs.values()))
        loads = [sum(self.estimates.load_secs(graph.operations[one]) for one in plan.loads) for plan in solution.plans]
        for fragment in solution.fragments:
            whole = solution.plans[fragment.plan].secs_per_row
            self.outcome.loading_secs += loads[fragment.plan] * fragment.rows * days
            self.outcome.recomputed_secs += (whole - loads[fragment.plan]) * fragment.rows * days
        return costs

    def _note_read(self, name: str, begin: datetime | None, costs: ReadCosts) -> None:
        """Record in the catalog that a model was trained on the day's data, or on all data."""
        start = None if begin is None else begin.timestamp()
        end = None if start is None else start + DAY_SECS

        def note(connection: Connection) -> None:
            model = get_model(connection, name)
            record_read(connection, model.id, TABLE, start, end, HOUR_ROWS, self.clock.now, costs)

        self.warehouse.catalog.run(note)

    def _count_bytes(self) -> None:
        """The bytes of ready memos, by partition, after some were dropped."""
        of, fragments = schema.memos.c, schema.fragments.c
        query = select(fragments.partition, func.sum(of.size_bytes)).join(schema.memos, of.fragment == fragments.id)
        query = query.where(of.state == MemoState.READY, fragments.partition.in_(sorted(self.kept_bytes)))
        with self.warehouse.catalog.read() as connection:
            rows = connection.execute(query.group_by(fragments.partition)).all()
        self.kept_bytes = Counter({partition: int(size) for partition, size in rows})

    def _ready_memos(self) -> int:
        of = schema.memos.c
        with self.warehouse.catalog.read() as connection:
            query = select(func.count()).select_from(schema.memos).where(of.state == MemoState.READY)
            return int(connection.execute(query).scalar_one())


def _by_fragment(tasks: Sequence[LeasedTask]) -> list[list[LeasedTask]]:
    groups: defaultdict[str, list[LeasedTask]] = defaultdict(list)
    for task in tasks:
        groups[task.fragment.fragment_id].append(task)
    return list(groups.values())


def _write_hour(log: Path, day: int, hour: int) -> None:
    """Write a file of a few rows, different for every hour."""
    at = START + timedelta(days=day, hours=hour)
    folder = log / f"date={at:%Y-%m-%d}" / f"hour={at:%H}"
    folder.mkdir(parents=True)
    number = day * 24 + hour
    made = {"string": lambda n: pa.array([f"words of {number}"] * n), "bool": lambda n: pa.array([False] * n),
            "float": lambda n: pa.array([float(number)] * n, pa.float32())}  # fmt: skip
    pq.write_table(pa.table({name: made[kind](2) for name, kind in COLUMNS}), folder / "part.parquet")


def simulate(
    config: ChurnConfig, policy: str, folder: Path, storage_price: float = 1.0, priced_days: int = PRICED_DAYS
) -> Outcome:
    """Simulate the whole history under one policy, in its own home."""
    folder.mkdir(parents=True)
    return Year(config, policy, folder, storage_price, priced_days).run(churn(config))


def simulate_all(
    config: ChurnConfig, policies: Sequence[str], folder: Path, storage_price: float = 1.0
) -> list[Outcome]:
    """Simulate every policy in its own process, as many at a time as there are cores."""
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(simulate, config, policy, folder / policy, storage_price) for policy in policies]
        return [future.result() for future in futures]


def show(config: ChurnConfig, outcomes: Sequence[Outcome]) -> bool:
    """Print the weeks and the table by policy; return whether the policy that keeps all meets the target."""
    print(f"{config.days} days, {config.hours_a_day} new hours a day; {config.live} live models of {config.inputs} inputs, "
          f"{config.births_a_day} born and retired a day; at the end {_readers(config):.1f} models read a component")  # fmt: skip
    print("\nhit rate by week")
    print(f"{'week':>5} " + " ".join(f"{one.policy:>9}" for one in outcomes))
    for week in range(len(outcomes[0].weeks)):
        print(f"{week + 1:>5} " + " ".join(f"{one.weeks[week].hit_rate:9.2%}" for one in outcomes))
    print(f"\n{'policy':<9} {'requests':>10} {'hits':>10} {'hit rate':>9} {'memos':>8} {'stored GB':>10} {'computed s':>11} "
          f"{'recomputed s':>13} {'loading s':>10} {'all, storage too':>17} {'took':>7}")  # fmt: skip
    for one in outcomes:
        rest = one.after_first_week()
        print(f"{one.policy:<9} {rest.requests:10,} {rest.hits:10,} {rest.hit_rate:9.2%} {one.memos:8,} "
              f"{one.stored_bytes / 1e9:10,.0f} {one.computed_secs:11,.0f} {one.recomputed_secs:13,.0f} "
              f"{one.loading_secs:10,.0f} {one.total_secs:17,.0f} {one.wall_secs:6.0f}s")  # fmt: skip
    print("requests, hits and their rate are those after the first week; the rest is the whole history")
    kept = next((one for one in outcomes if one.policy == "all"), None)
    if kept is None:
        return True
    found = kept.after_first_week().hit_rate
    met = found > TARGET
    print(f"hit rate after the first week {found:.2%}, target over {TARGET:.0%}: {'ok' if met else 'missed'}")
    return met


def _readers(config: ChurnConfig) -> float:
    live: dict[str, Born] = {}
    for day in churn(config):
        live |= {born.name: born for born in day.born}
        for name in day.retired:
            del live[name]
    return readers_a_component(list(live.values()))


def main() -> int:
    """Simulate; the exit status is 1 if the target is missed (never with ``--small``)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--storage-price", type=float, default=1.0, help="times the list price")
    parser.add_argument("--small", action="store_true", help="few models for two weeks, to test the script")
    options = parser.parse_args()
    config = ChurnConfig(seed=options.seed, days=options.days)
    if options.small:
        config = ChurnConfig(seed=options.seed, days=15, live=6, inputs=10, hours_a_day=1)
    print(machine())
    with tempfile.TemporaryDirectory(prefix="headrace-churn-") as folder:
        met = show(config, simulate_all(config, options.policies, Path(folder), options.storage_price))
    return 0 if met or options.small else 1


if __name__ == "__main__":
    sys.exit(main())
