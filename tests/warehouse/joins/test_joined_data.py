"""Joined columns beside what else happens to tables: compaction, garbage collection, verification, drops, damage and kills."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import func, select, update

import headrace as hr
from headrace.views.joins import listed
from tests.support.killing import KILLING
from tests.support.processes import PATIENCE_SECS
from tests.warehouse.joins.scenes import Folders, clicks, events, write_tables, written
from tests.warehouse.joins.test_refresh import CLICKS, check_counts, column_of, memoize, model, refresh
from tests.warehouse.scenes import Clock, start
from transforms.errors import Busy, InputError, TypeMismatch, UnknownColumn
from warehouse import Warehouse, WarehouseConfig, collect_garbage, register_table, submit_model, verify_warehouse
from warehouse.catalog import schema
from warehouse.changes.append import append_rows
from warehouse.changes.drop_table import drop_table
from warehouse.changes.overlay import fix_columns
from warehouse.errors import UnknownTable
from warehouse.files.arrow_file import write_arrow_file
from warehouse.files.digests import column_digest
from warehouse.joins.computation import Computation
from warehouse.joins.preview import previewed_columns
from warehouse.joins.refresh import JoinWorker
from warehouse.maintenance.compact_table import compact_table
from warehouse.matching.explain import explain_model
from warehouse.models.joined_columns import joined_columns
from warehouse.models.retire import retire_model
from warehouse.tables.manifests import current_fragments, get_table

COUNT = CLICKS.count(window="40m")


@pytest.fixture
def joined(warehouse: Warehouse, folders: Folders) -> Warehouse:
    """Both tables, with a model whose joined column is computed and memoized."""
    submit_model(warehouse, model(COUNT.log1p()))
    refresh(warehouse)
    memoize(warehouse)
    return warehouse


def version(warehouse: Warehouse, table: str = "log") -> int:
    return warehouse.catalog.query(lambda connection: get_table(connection, table)).version


def test_merged_fragments_of_both_tables_change_nothing(joined, folders):
    compact_table(joined, "clicks")
    compact_table(joined, "log")
    assert refresh(joined) == []
    check_counts(joined, COUNT, 2_400)
    assert all(one.hit for one in explain_model(joined, "ctr"))
    append_rows(joined, "clicks", [_saved(folders, clicks(1, 9, seed=77))])
    assert refresh(joined)
    check_counts(joined, COUNT, 2_400)
    memoize(joined)
    assert all(one.hit for one in explain_model(joined, "ctr"))


def test_collected_and_verified(joined, folders, clock):
    append_rows(joined, "clicks", [_saved(folders, clicks(1, 9, seed=77))])
    refresh(joined)
    memoize(joined)
    clock.now = 4e9
    collect_garbage(joined, dry_run=False)
    assert verify_warehouse(joined).findings == ()
    check_counts(joined, COUNT, 2_400)
    assert refresh(joined) == []


def test_a_table_that_is_joined_is_dropped_only_by_force(joined):
    with pytest.raises(Busy, match="live model ctr"):
        drop_table(joined, "clicks")
    assert drop_table(joined, "clicks", force=True).models == ("ctr",)
    assert refresh(joined) == []
    assert listed(joined).joins[0].models == ()


def test_a_retired_model_needs_no_values(joined, folders):
    retire_model(joined, "ctr")
    append_rows(joined, "clicks", [_saved(folders, clicks(1, 9, seed=77))])
    assert refresh(joined) == []
    submit_model(joined, model(COUNT.log1p()))
    assert refresh(joined)
    check_counts(joined, COUNT, 2_400)


def test_a_dry_run_names_the_fragments_that_may_change(joined, folders):
    late = _saved(folders, clicks(1, 9, seed=77))
    planned = append_rows(joined, "clicks", [late], dry_run=True).rejoins
    assert [(one.table, one.columns, one.models, one.fragments, one.rows) for one in planned] == [
        ("log", (COUNT.node.name,), ("ctr",), 2, 40)
    ]
    assert append_rows(joined, "clicks", [late]).rejoins == planned
    fixed = _saved(folders, {name: values.slice(0, 1) for name, values in clicks(0).items() if name != "country"})
    assert (
        fix_columns(joined, "clicks", fixed, why="x", on=("time", "id"), columns=("paid",), dry_run=True).rejoins == ()
    )


def test_damaged_rows_fail_the_column_and_no_other_one(warehouse, folders):
    users = hr.table("log").by(hr.int64("user"))
    submit_model(warehouse, model(COUNT.log1p(), users.count().log1p()))
    pq.write_table(pa.table(clicks(1, seed=3)), folders.clicks / "date=2026-01-01" / "hour=01" / "part.parquet")
    worker = JoinWorker(warehouse, "w")
    failed = [name for one in iter(worker.step, None) for name, _ in one.failed]
    assert set(failed) == {COUNT.node.name}
    states = {one.column: (one.state, one.error) for one in listed(warehouse).joins}
    assert states[users.count().node.name] == ("all", "")
    assert "the file changed since it was registered" in states[COUNT.node.name][1]
    assert worker.step() is None, "it is not tried again by itself"
    register_table(warehouse, "clicks", str(folders.clicks))
    refresh(warehouse)
    check_counts(warehouse, COUNT, 2_400)
    assert {one.error for one in listed(warehouse).joins} == {""}


@pytest.mark.parametrize(
    ("expression", "kind", "text"),
    [
        (hr.table("nothing").by(hr.int64("user")).count(), UnknownTable, "nothing"),
        (hr.table("clicks").by("id", equals=hr.int64("person")).count(), UnknownColumn, "person"),
        (hr.table("clicks").by("key", equals=hr.int64("user")).count(), UnknownColumn, "key"),
        (CLICKS.sum(hr.int64("country")), TypeMismatch, "country"),
        (hr.table("clicks", known_at="paid").by("id", equals=hr.int64("user")).count(), TypeMismatch, "paid"),
        (hr.table("log", including_equal=True).by(hr.int64("user")).count(), InputError, "an event sees itself"),
        (hr.table("timeless").by("id", equals=hr.int64("user")).count(), InputError, "--time-column"),
    ],
)
def test_what_tables_do_not_have_is_refused_before_anything_is_written(warehouse, folders, expression, kind, text):
    register_table(warehouse, "timeless", str(folders.clicks))
    with pytest.raises(kind, match=text):
        submit_model(warehouse, model(expression.log1p()))
    assert listed(warehouse).joins == ()


_CODE = f"""{KILLING}
import sys
from warehouse import Warehouse, WarehouseConfig
from warehouse.changes import publish
from warehouse.joins import publication, refresh
from warehouse.storage import storage
home, point = sys.argv[1:]

if point == "after the lease":
    killing(refresh.Computation, "columns", after=False)
elif point == "after the first file":
    killing(storage.Storage, "write_atomic", after=True)
elif point == "before the transaction":
    killing(publish, "begin_version", after=False)
elif point == "in the transaction":
    killing(publication, "insert_absent", after=False)
else:
    killing(publication, "apply_replacements", after=True)
with Warehouse.open(WarehouseConfig(home, read_threads=1)) as warehouse:
    worker = refresh.JoinWorker(warehouse, "killed")
    while worker.step():
        pass
"""


@pytest.mark.medium
@pytest.mark.parametrize(
    "point",
    ["after the lease", "after the first file", "before the transaction", "in the transaction", "with a version"],
)
def test_a_killed_worker_loses_and_doubles_nothing(tmp_path: Path, point: str):
    folders, clock = write_tables(tmp_path), Clock()
    home = str(tmp_path / "home")
    with Warehouse.open(WarehouseConfig(home, read_threads=1), clock) as warehouse:
        register_table(warehouse, "log", str(folders.log), time_column="at")
        register_table(warehouse, "clicks", str(folders.clicks), time_column="time")
        submit_model(warehouse, model(COUNT.log1p()))
    process = start(_CODE, home, point)
    assert process.wait(PATIENCE_SECS) == -signal.SIGKILL, process.stderr and process.stderr.read()
    clock.now = 4e9  # its lease has ended
    with Warehouse.open(WarehouseConfig(home, read_threads=1), clock) as warehouse:
        assert version(warehouse) == 1
        refresh(warehouse)
        assert version(warehouse) == 2
        check_counts(warehouse, COUNT, 2_400)
        collect_garbage(warehouse, dry_run=False)
        assert verify_warehouse(warehouse).findings == ()


def test_two_workers_share_the_fragments(warehouse, folders, monkeypatch):
    monkeypatch.setattr("warehouse.joins.leases.MOST_FRAGMENTS", 2)
    submit_model(warehouse, model(COUNT.log1p()))
    first, second = JoinWorker(warehouse, "first"), JoinWorker(warehouse, "second")
    seen: list[int] = []
    original = Computation.columns

    def meanwhile(work):
        if not seen:
            seen.append(0)
            done = second.step()
            assert done is not None
            seen.append(done.fragments)
            assert second.step() is None, "the first worker has the rest"
            assert second.waiting == 2
        return original(work)

    monkeypatch.setattr(Computation, "columns", meanwhile)
    assert first.step().fragments == 2
    assert seen == [0, 1]
    assert refresh(warehouse) == []
    check_counts(warehouse, COUNT, 2_400)


def _saved(folders: Folders, columns: dict[str, pa.Array]) -> str:
    path = folders.log.parent / f"saved-{len(list(folders.log.parent.iterdir()))}.parquet"
    pq.write_table(pa.table(columns), path)
    return str(path)


def test_events_of_a_self_join_do_not_see_themselves(warehouse, folders):
    own = hr.table("log").by(hr.int64("user")).count()
    submit_model(warehouse, model(own.log1p()))
    refresh(warehouse)
    found = column_of(warehouse, own.node.name)
    users, times = found["user"].to_pylist(), found["at"].to_pylist()
    expected = [
        sum(a == user and b < time for a, b in zip(users, times, strict=True))
        for user, time in zip(users, times, strict=True)
    ]
    assert found[own.node.name].to_pylist() == expected
    written(folders.log, 3, events(3))
    register_table(warehouse, "log", str(folders.log))
    assert refresh(warehouse) == [(1, 1)]


def test_what_is_joined_from_a_table_is_found_by_it(joined, folders):
    from warehouse.search.column_use import column_use
    from warehouse.search.query import ComponentQuery
    from warehouse.search.search import matching_fingerprints

    paid = CLICKS.mean(hr.float64("paid"))
    submit_model(joined, model(COUNT.log1p(), (paid * 2.0), name="second"))
    refresh(joined)
    memoize(joined)

    def found(**conditions: str) -> int:
        return len(
            joined.catalog.query(
                lambda connection: list(matching_fingerprints(connection, ComponentQuery(**conditions)))
            )
        )

    counts = {name: found(table=name) for name in ("clicks", "log")}
    assert counts == {"clicks": 2, "log": 2}
    assert found(table="clicks", model="ctr") == 1
    use = column_use(joined, "clicks", "paid")
    assert use.roles == (f"joined column {paid.node.name} of table log",)
    assert [(one.name, one.inputs) for one in use.models] == [("second", ("x1",))]
    assert {one.kind for one in use.files} == {"files of the table", "overlays", "memos"}
    assert not any(one.path.startswith(str(folders.log)) for one in use.files)
    by_key = column_use(joined, "log", "user")
    assert len(by_key.roles) == 2
    assert len({one.path for one in by_key.files}) == len(by_key.files), "a file of several joined columns is one"


def test_keys_in_buckets_give_the_same_columns(warehouse, folders, monkeypatch):
    expressions = (
        COUNT.log1p(),
        CLICKS.latest(hr.text("country")).hash_buckets(5),
        CLICKS.last(3, hr.float64("paid"), window="2h"),
        hr.table("clicks")
        .by(hr.text("country"), equals=hr.int64("user").lookup({0: "de", 1: "fr", 2: "it"}))
        .by("id", equals=hr.int64("user"))
        .count()
        * 1.0,
    )
    submit_model(warehouse, model(*expressions))
    refresh(warehouse)
    whole = _digests(warehouse)
    monkeypatch.setattr("warehouse.joins.computation.MOST_ROWS", 25)
    with warehouse.catalog.read() as connection:
        table, fragments = get_table(connection, "log"), current_fragments(connection, "log")
    definitions = {one.column: one.definition for one in warehouse.catalog.query(joined_columns)}
    assert len(definitions) == 4
    for name, values in previewed_columns(warehouse, table, definitions, fragments).items():
        assert [column_digest(one) for one in values] == whole[name]


def _digests(warehouse: Warehouse) -> dict[str, list[str]]:
    with warehouse.catalog.read() as connection:
        fragments = current_fragments(connection, "log")
        names = [one.column for one in joined_columns(connection)]
    return {name: [one.fragment.digests[name] for one in fragments] for name in names}


def test_values_are_computed_again_to_verify_them(joined, folders):
    assert verify_warehouse(joined, recompute=10).findings == ()
    with joined.catalog.write() as connection:
        path = connection.execute(select(schema.overlays.c.path)).scalars().first()
    placed = joined.catalog.query(lambda connection: current_fragments(connection, "log"))[0]
    wrong = pa.array([7] * placed.fragment.rows, pa.int64())
    file = write_arrow_file(joined.storage, "overlays/log/wrong.arrow", {COUNT.node.name: wrong})
    checksum = file.columns[COUNT.node.name].checksum
    with joined.catalog.write() as connection:
        row = connection.execute(select(schema.fragments).where(schema.fragments.c.id == placed.row)).one()
        connection.execute(update(schema.fragments).where(schema.fragments.c.id == placed.row).values(
            digests={**row.digests, COUNT.node.name: checksum}, overlays={**row.overlays, COUNT.node.name: file.path}))  # fmt: skip
        connection.execute(
            update(schema.overlays).where(schema.overlays.c.path == path).values(path=file.path, checksum=checksum)
        )
        of = schema.joined_views
        connection.execute(
            update(of).where(of.c.checksum == placed.fragment.digests[COUNT.node.name]).values(checksum=checksum)
        )
    found = [one.what for one in verify_warehouse(joined, recompute=10).findings]
    assert "computing it again gave other values than the joined column" in found


def test_views_that_nothing_has_any_more_are_forgotten(joined, folders, clock):
    append_rows(joined, "clicks", [_saved(folders, clicks(1, 9, seed=77))])
    refresh(joined)
    with joined.catalog.read() as connection:
        before = connection.execute(select(func.count()).select_from(schema.joined_views)).scalar_one()
    clock.now += 400 * 86_400
    collect_garbage(joined, dry_run=False)
    with joined.catalog.read() as connection:
        after = connection.execute(select(func.count()).select_from(schema.joined_views)).scalar_one()
    assert (before, after) == (5, 3)
    assert refresh(joined) == []


_WORKER = """
import sys
from warehouse import Warehouse, WarehouseConfig
from warehouse.joins import leases
from warehouse.joins.refresh import JoinWorker
leases.MOST_FRAGMENTS = 1
home, name = sys.argv[1:]
with Warehouse.open(WarehouseConfig(home, read_threads=1)) as warehouse:
    worker = JoinWorker(warehouse, name)
    print("ready", flush=True)
    sys.stdin.readline()
    print(sum(step.fragments for step in iter(worker.step, None)), flush=True)
"""


@pytest.mark.medium
def test_processes_compute_each_fragment_once(tmp_path: Path):
    folders, home = write_tables(tmp_path, 8), str(tmp_path / "home")
    with Warehouse.open(WarehouseConfig(home, read_threads=1)) as warehouse:
        register_table(warehouse, "log", str(folders.log), time_column="at")
        register_table(warehouse, "clicks", str(folders.clicks), time_column="time")
        submit_model(warehouse, model(COUNT.log1p()))
        processes = [start(_WORKER, home, name) for name in ("first", "second")]
        for one in processes:
            assert one.stdout.readline() == "ready\n"
        for one in processes:
            one.stdin.write("go\n")
            one.stdin.flush()
        done = [one.communicate(timeout=PATIENCE_SECS)[0] for one in processes]
        assert sum(map(int, done)) == 8
        assert all(map(int, done)), "both have worked"
        assert refresh(warehouse) == []
        check_counts(warehouse, COUNT, 2_400)


def test_lineage_names_the_table_and_the_version_that_were_joined(tmp_path: Path):
    folders = write_tables(tmp_path)
    with Warehouse.open(
        WarehouseConfig(str(tmp_path / "home"), read_threads=1, lineage=str(tmp_path / "events.jsonl"))
    ) as warehouse:
        register_table(warehouse, "log", str(folders.log), time_column="at")
        register_table(warehouse, "clicks", str(folders.clicks), time_column="time")
        submit_model(warehouse, model(COUNT.log1p()))
        refresh(warehouse)
        with warehouse.catalog.read() as connection:
            stored = connection.execute(select(schema.lineage_events.c.document)).scalars().all()
    documents = [json.loads(one) for one in stored]
    (event,) = [one for one in documents if (one["job"]["name"], one["eventType"]) == ("overlay/log", "COMPLETE")]
    assert [one["name"] for one in event["inputs"]] == ["clicks"]
    assert event["inputs"][0]["facets"]["version"]["datasetVersion"] == "1"
    assert [one["name"] for one in event["outputs"]] == ["log"]


def test_a_joined_column_takes_no_values_by_hand(joined, folders):
    values = {"at": events(0)["at"].slice(0, 1), COUNT.node.name: pa.array([5], pa.int64())}
    with pytest.raises(InputError, match="must follow the table"):
        fix_columns(joined, "log", _saved(folders, values), why="x", on=("at",))
    assert version(joined) == 2


def test_corrections_of_other_columns_keep_joined_ones(joined, folders):
    """The fragment gets a new row in the catalog; the column and what is above it stay."""
    times = events(0)["at"].to_pylist()
    place = next(one for one in range(len(times)) if times.count(times[one]) == 1)
    values = {"at": events(0)["at"].slice(place, 1), "clicked": pa.array([True])}
    fix_columns(joined, "log", _saved(folders, values), why="x", on=("at",))
    assert refresh(joined) == []
    assert all(one.hit for one in explain_model(joined, "ctr"))
