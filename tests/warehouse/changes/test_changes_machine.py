"""Random changes equal those of a naive table that recomputes everything, and no row is computed twice."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

import transforms.expressions.expression as hr
from tests.warehouse.changes.naive import GROUP_ROWS, SCHEMA, SPAM, WORDS, NaiveFragment, NaiveTable, Row, to_table
from tests.warehouse.scenes import Clock, compute
from transforms.execution.plan import compile_plan
from transforms.expressions.model import Model
from transforms.graphs.graph import raw_columns
from warehouse import (
    ReadSolution,
    Storage,
    Warehouse,
    WarehouseConfig,
    commit_memos,
    lease_tasks,
    queue_missing,
    read_fragment,
    read_raw,
    read_solution,
    register_table,
    submit_model,
)
from warehouse.changes.append import append_rows
from warehouse.changes.deletion import delete_rows
from warehouse.changes.overlay import fix_columns, overlay_columns
from warehouse.tables.manifests import current_fragments, get_table
from warehouse.tables.overlays import live_mask

SEEDS = st.integers(0, 10**6)
MOST_HOURS = 3

#: Every component a model may have, by what it reads.
COMPONENTS = {
    "query": hr.text("query").unigrams().hash_buckets(50),
    "price": hr.float32("price").fill_null(0.0).log1p(),
    "both": hr.cross(hr.text("query"), hr.float32("price").fill_null(0.0).bucketize([1.0, 3.0]), buckets=40),
    "spam": hr.float32("spam").fill_null(-1.0).log1p(),
}


def read_live(storage: Storage, solution: ReadSolution, fragment: Any) -> pa.Table:
    """What a trainer gets of a fragment: the events that were not retracted."""
    table = read_fragment(storage, solution, fragment)
    assert table.num_rows == fragment.live_rows
    return table


class ChangesMachine(RuleBasedStateMachine):
    """``computed``: (component, values of the columns it reads) of every fragment that was ever computed."""

    @initialize(seed=SEEDS)
    def open(self, seed: int) -> None:
        chance = random.Random(seed)
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-changes-"))
        self.warehouse = Warehouse.open(
            WarehouseConfig(str(self.folder / "home"), fragment_rows=GROUP_ROWS, read_threads=1), Clock()
        )
        self.naive = NaiveTable(self.folder / "log")
        self.files, self.models, self.has_spam = 0, {}, False
        self.computed: set[Any] = set()
        self.versions: dict[int, list[NaiveFragment]] = {}
        self.pinned: list[tuple[ReadSolution, list[NaiveFragment], list[str]]] = []
        for hour in range(2):
            sizes = [GROUP_ROWS] * chance.randint(0, 2) + [chance.randint(1, GROUP_ROWS)]
            path = str(self.folder / "log" / f"date=2026-01-01/hour={hour:02d}" / "part.parquet")
            self.naive.add_file(hour, path, [self.naive.new_rows(size, hour, chance) for size in sizes])
            self.naive.write_file(path, next(iter(self.naive.partitions[f"date=2026-01-01/hour={hour:02d}"].values())))
        register_table(self.warehouse, "log", str(self.naive.root), time_column="time")
        self.note_version(changed=True)

    def note_version(self, *, changed: bool) -> None:
        """The table is at a new version exactly when something changed."""
        with self.warehouse.catalog.read() as connection:
            version = get_table(connection, "log").version
        assert version == len(self.versions) + changed
        self.versions[version] = self.naive.snapshot()

    def values_file(self, rows: list[Row], columns: list[str]) -> str:
        self.files += 1
        path = self.folder / f"values-{self.files}.parquet"
        fields = [SCHEMA.field(name) for name in columns]
        pq.write_table(pa.table({one.name: pa.array([r[one.name] for r in rows], one.type) for one in fields}), path)
        return str(path)

    @rule(seed=SEEDS, hours=st.sets(st.integers(0, MOST_HOURS - 1), min_size=1))
    def append(self, seed: int, hours: set[int]) -> None:
        chance = random.Random(seed)
        late = {hour: self.naive.new_rows(chance.randint(1, 5), hour, chance) for hour in sorted(hours)}
        rows = [row for part in late.values() for row in part]
        chance.shuffle(rows)
        path = self.values_file(rows, [one.name for one in SCHEMA][:-1])
        done = append_rows(self.warehouse, "log", [path], create=True)
        assert done.rows == len(rows)
        ids = {row["event_id"] for row in rows}
        with self.warehouse.catalog.read() as connection:
            for placed in current_fragments(connection, "log"):
                raw = read_raw(self.warehouse.storage, placed.fragment, ["event_id"]).column("event_id").to_pylist()
                if ids.issuperset(raw):
                    hour = placed.start.hour
                    in_order = [row for row in rows if row in late[hour]]
                    self.naive.add_file(hour, placed.fragment.path, [in_order])
        self.note_version(changed=True)

    @rule(seed=SEEDS, column=st.sampled_from(["clicked", "spam"]), share=st.sampled_from([0.2, 0.6, 1.0]))
    def overlay(self, seed: int, column: str, share: float) -> None:
        chance = random.Random(seed)
        draw = (lambda: chance.random() < 0.5) if column == "clicked" else (lambda: chance.choice([None, 0.0, 1.0]))
        ids = [row["event_id"] for row in self.naive.all_rows() if chance.random() < share]
        rows = [{"event_id": one, column: draw()} for one in (*ids, 10**9)]
        chance.shuffle(rows)
        path = self.values_file(rows, ["event_id", column])
        changed = self.naive.change({row["event_id"]: {column: row[column]} for row in rows})
        done = overlay_columns(self.warehouse, "log", path, on=["event_id"])
        assert (done.changed, done.rows, done.unknown_keys) == (changed, len(ids), 1)
        self.has_spam = self.has_spam or (changed and column == "spam")
        self.note_version(changed=changed)

    @rule(seed=SEEDS)
    def overlay_aligned(self, seed: int) -> None:
        chance = random.Random(seed)
        self.files += 1
        folder = self.folder / f"mirror-{self.files}"
        values: dict[int, Row] = {}
        for files in self.naive.partitions.values():
            for path, fragments in files.items():
                if chance.random() < 0.5 and values:
                    continue
                rows = [row for one in fragments for row in one.rows]
                verdicts = [chance.choice([None, 0.0, 1.0]) for _ in rows]
                values |= {row["event_id"]: {"spam": one} for row, one in zip(rows, verdicts, strict=True)}
                target = folder / Path(path).relative_to(self.naive.root)
                target.parent.mkdir(parents=True, exist_ok=True)
                pq.write_table(pa.table({"spam": pa.array(verdicts, SPAM)}), target)
        changed = self.naive.change(values)
        done = overlay_columns(self.warehouse, "log", str(folder))
        assert (done.changed, done.rows) == (changed, len(values))
        self.has_spam = self.has_spam or changed
        self.note_version(changed=changed)

    @rule(seed=SEEDS, column=st.sampled_from(["query", "price"]), share=st.sampled_from([0.1, 0.5]))
    def fix(self, seed: int, column: str, share: float) -> None:
        chance = random.Random(seed)
        rows = [dict(row) for row in self.naive.all_rows() if chance.random() < share]
        for row in rows:
            row[column] = chance.choice([None, chance.choice(WORDS) if column == "query" else chance.randrange(3) / 2])
        if chance.random() < 0.3:  # what the files hold is true again
            stored = {row["event_id"]: row for one in self.naive.fragments() for row in one.stored}
            rows = [dict(row) for row in stored.values()]
        changed = self.naive.change({row["event_id"]: {column: row[column]} for row in rows})
        done = fix_columns(
            self.warehouse, "log", self.values_file(rows, ["event_id", column]), on=["event_id"], why="typo"
        )
        assert (done.changed, done.rows) == (changed, len(rows))
        self.note_version(changed=changed)

    @rule(seed=SEEDS, by_key=st.booleans())
    def delete(self, seed: int, by_key: bool) -> None:
        chance = random.Random(seed)
        if by_key:
            ids = {row["event_id"] for row in self.naive.all_rows() if chance.random() < 0.15}
            path = self.values_file([{"event_id": one} for one in sorted(ids)], ["event_id"])
            done = delete_rows(self.warehouse, "log", on=["event_id"], keys=path)
            count = self.naive.retract(lambda row: row["event_id"] in ids)
        else:
            price = float(chance.randrange(5))
            done = delete_rows(self.warehouse, "log", where=[("price", str(price)), ("clicked", "true")])
            count = self.naive.retract(lambda row: row["price"] == price and row["clicked"])
        assert done.rows == count
        self.note_version(changed=count > 0)

    @rule(seed=SEEDS)
    def rewrite_a_file(self, seed: int) -> None:
        """One fragment of a file is written with other values: what was laid over it goes, the rest stays."""
        chance = random.Random(seed)
        key = chance.choice(sorted(self.naive.partitions))
        files = self.naive.partitions[key]
        path = chance.choice(sorted(files))
        at = chance.randrange(len(files[path]))
        stored = [{**row, "price": 90.0 + chance.randrange(1000)} for row in files[path][at].stored]
        before = files[path][at]
        # The same values once more are the same content: what was laid over it holds as before.
        lost = stored != before.stored and (before.rows != before.stored or any(before.deleted))
        if stored != before.stored:
            files[path][at] = NaiveFragment(stored)
        self.naive.write_file(path, files[path])
        self.naive.partitions[key] = dict(sorted(files.items()))
        done = register_table(self.warehouse, "log", str(self.naive.root))
        assert done.changed == (key,)
        assert bool(done.dropped) == lost
        self.note_version(changed=True)

    @rule(names=st.sets(st.sampled_from(sorted(COMPONENTS)), min_size=1), model=st.sampled_from(["one", "two"]))
    def submit(self, names: set[str], model: str) -> None:
        if not self.has_spam:
            names = (names - {"spam"}) or {"query"}
        made = Model(model, client=model, label="clicked", table="log")
        for name in sorted(names):
            made.input(name, COMPONENTS[name])
        self.models[model] = names
        submit_model(self.warehouse, made)

    @rule()
    def work(self) -> None:
        queue_missing(self.warehouse)
        expected: dict[str, int] = {}
        for name in set().union(*self.models.values()) if self.models else set():
            columns = sorted({column.name for column in raw_columns(COMPONENTS[name].node)})
            for one in self.naive.fragments():
                content = (name, *(tuple(row[column] for row in one.rows) for column in columns))
                if content not in self.computed:
                    self.computed.add(content)
                    expected[name] = expected.get(name, 0) + len(one.rows)
        found: dict[str, int] = {}
        names = {expression.node.identity: name for name, expression in COMPONENTS.items()}
        while tasks := lease_tasks(self.warehouse, "w", limit=50):
            for task in tasks:
                written = compute(self.warehouse, task)
                assert commit_memos(self.warehouse, [(task, written)])[0]
                found[names[task.fingerprint]] = found.get(names[task.fingerprint], 0) + written.rows
        assert found == expected

    @precondition(lambda self: self.models)
    @rule(model=st.sampled_from(["one", "two"]), pin=st.booleans())
    def read(self, model: str, pin: bool) -> None:
        if model not in self.models:
            return
        solution = read_solution(self.warehouse, model)
        names = sorted(self.models[model])
        self.check_solution(solution, self.naive.fragments(), names)
        if pin:
            self.pinned.append((ReadSolution.from_document(solution.to_document()), self.naive.snapshot(), names))

    @precondition(lambda self: self.pinned)
    @rule()
    def read_what_is_pinned(self) -> None:
        for solution, then, names in self.pinned:
            self.check_solution(solution, then, names)

    def check_solution(self, solution: ReadSolution, expected: list[NaiveFragment], names: list[str]) -> None:
        fragments = [fragment for part in solution.partitions for fragment in part.fragments]
        assert len(fragments) == len(expected)
        plan = compile_plan({name: COMPONENTS[name].node for name in names})
        for fragment, naive in zip(fragments, expected, strict=True):
            if not self.still_holds(fragment.path, naive):
                continue
            table = read_live(self.warehouse.storage, solution, fragment)
            raw = to_table(naive.live).select([column.name for column in plan.columns])
            wanted = plan.run(raw).columns
            for name in names:
                assert table.column(name).to_pylist() == wanted[name].to_pylist()
            assert table.column("__label__").to_pylist() == [row["clicked"] for row in naive.live]

    @rule(data=st.data())
    def travel(self, data: st.DataObject) -> None:
        """Any version that is not of rewritten files reads as it was."""
        version = data.draw(st.sampled_from(sorted(self.versions)))
        with self.warehouse.catalog.read() as connection:
            placed = current_fragments(connection, "log", at_version=version)
        expected = self.versions[version]
        for model, names in self.models.items():
            then = read_solution(self.warehouse, model, table_version=version)
            self.check_solution(then, expected, sorted(names))
        assert [one.fragment.rows for one in placed] == [len(one.rows) for one in expected]
        columns = [one.name for one in SCHEMA if one.name != "spam" or self.has_spam]
        for one, naive in zip(placed, expected, strict=True):
            if not self.still_holds(one.fragment.path, naive):
                continue
            raw = read_raw(self.warehouse.storage, one.fragment, columns)
            assert raw.equals(to_table(naive.rows).select(columns))
            mask = live_mask(self.warehouse.storage, one.fragment)
            assert (raw if mask is None else raw.filter(mask)).to_pylist() == to_table(naive.live).select(
                columns
            ).to_pylist()

    def still_holds(self, path: str, then: NaiveFragment) -> bool:
        """A file that somebody rewrote in place is gone for everybody; no change of ours does that."""
        now = [one.stored for files in self.naive.partitions.values() for one in files.get(path, ())]
        return then.stored in now

    def teardown(self) -> None:
        if hasattr(self, "warehouse"):
            self.warehouse.close()
            shutil.rmtree(self.folder)


def run(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        ChangesMachine,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, derandomize=True, database=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        ),
    )  # fmt: skip


@pytest.mark.slow
def test_changing_data_is_what_recomputing_everything_gives() -> None:
    run(examples=4, steps=12)


@pytest.mark.slow
def test_changing_data_at_length() -> None:
    run(examples=200, steps=40)
