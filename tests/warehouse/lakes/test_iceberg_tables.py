"""Tables that follow an Iceberg table, written by pyiceberg, and row deletes as other engines write them."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pyarrow as pa
import pyiceberg.catalog
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DoubleType, LongType, NestedField, TimestamptzType

from headrace.cli.lakes import _patient
from tests.warehouse.lakes.iceberg_deletes import catalog, data_files, delete_equal, delete_positions
from tests.warehouse.lakes.scenes import ALL_TYPES, Follower, events, same_rows
from transforms.errors import DataError, InputError, StorageError
from warehouse.errors import SchemaDrift
from warehouse.lakes.iceberg import newest_metadata
from warehouse.tables.history import table_history


@pytest.fixture
def known(tmp_path: Path) -> SqlCatalog:
    (tmp_path / "ice berg").mkdir()
    return catalog(tmp_path / "ice berg")


@pytest.fixture
def table(known: SqlCatalog) -> Table:
    made = known.create_table("ns.log", schema=events(range(8)).schema)
    with made.update_spec() as spec:
        spec.add_identity("country")
    made.append(events(range(40)))
    return made


@pytest.fixture
def root(table: Table) -> Path:
    return Path(table.location().removeprefix("file://"))


@pytest.fixture
def follower(tmp_path: Path, root: Path) -> Follower:
    return Follower.open(tmp_path / "home", str(root))


def ids(follower: Follower) -> set[int]:
    return {row["id"] for row in follower.rows("id")}


@pytest.mark.medium
def test_each_operation_becomes_what_changed(follower: Follower, known: SqlCatalog, table: Table) -> None:
    def is_same() -> bool:
        return same_rows(follower.rows(), known.load_table("ns.log").scan().to_arrow().to_pylist())

    assert follower.refresh(keys=("id",)).appended_rows == 40
    assert is_same()
    places = {row["id"]: place for place, row in follower.placed_rows("id")}
    table.append(events(range(40, 48)))
    assert follower.refresh().appended_rows == 8
    table.delete("id < 4")
    assert follower.refresh().deleted_rows == 4
    table.upsert(events([10, 11, 100], label=7.0), join_cols=["id"])
    found = follower.refresh()
    assert (found.updated_rows, found.updated_columns, found.appended_rows, found.deleted_rows) == (2, ("label",), 1, 0)
    assert is_same()
    assert not follower.refresh().changed
    table.overwrite(events([200]), overwrite_filter="id >= 100")
    found = follower.refresh()
    assert (found.deleted_rows, found.appended_rows) == (1, 1)
    assert is_same()
    now = {row["id"]: place for place, row in follower.placed_rows("id")}
    assert all(now[one] == place for one, place in places.items() if one >= 4)
    with follower.warehouse.catalog.read() as connection:
        kinds = [one.kind for one in table_history(connection, "log")]
    assert kinds == ["register", "append", "delete", "overlay", "append", "delete", "append"]
    first = table.history()[0].snapshot_id
    assert follower.refresh(str(first)).rows == 40
    assert ids(follower) == set(range(40))


@pytest.mark.medium
def test_deletes_by_position(follower: Follower, root: Path) -> None:
    follower.refresh()
    places = {row["id"]: place for place, row in follower.placed_rows("id")}
    paths = sorted(data_files(root))
    delete_positions(root, {paths[0]: [0, 2], paths[1]: [9]})
    found = follower.refresh()
    assert (found.deleted_rows, found.appended_rows, found.moved_rows, found.updated_rows) == (3, 0, 0, 0)
    assert len(paths) == 4  # one for each country
    delete_positions(root, {paths[0]: [1]})
    assert follower.refresh().deleted_rows == 1
    now = {row["id"]: place for place, row in follower.placed_rows("id")}
    assert len(now) == 36
    assert all(places[one] == place for one, place in now.items())
    again = Follower.open(root.parent / "other home", str(root))
    assert again.refresh().appended_rows == 36
    assert ids(again) == ids(follower)


@pytest.mark.medium
def test_deletes_by_equal_values(follower: Follower, root: Path, table: Table) -> None:
    follower.refresh()
    partition = next(file.partition for file in data_files(root).values() if "country=null" in file.file_path)
    gone = pa.table({"id": pa.array([2, 6, 7], pa.int64())})  # 7 is of another partition, so it stays
    delete_equal(root, gone, partition)
    assert follower.refresh().deleted_rows == 2
    assert ids(follower) == set(range(40)) - {2, 6}
    again = Follower.open(root.parent / "other home", str(root))
    assert again.refresh().appended_rows == 38
    assert ids(again) == ids(follower)


def test_equality_deletes_of_a_table_without_partitions_and_by_null(tmp_path: Path, known: SqlCatalog) -> None:
    table = known.create_table("ns.plain", schema=events(range(8)).schema)
    table.append(events(range(8)))
    root = Path(table.location().removeprefix("file://"))
    delete_equal(
        root,
        pa.table({"country": pa.array([None, "D E"], pa.string())}),
        next(iter(data_files(root).values())).partition,
    )
    follower = Follower.open(tmp_path / "home", str(root))
    follower.refresh()
    assert ids(follower) == {1, 3, 5, 7}


def test_a_table_of_a_catalog_and_its_identifier_fields(
    tmp_path: Path, known: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "time", TimestamptzType()),
                    NestedField(3, "label", DoubleType()), identifier_field_ids=[1])  # fmt: skip
    table = known.create_table("ns.keyed", schema=schema)
    rows = events(range(6)).select(["id", "time", "label"])
    wanted = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), rows.schema.field("time"), rows.schema.field("label")]
    )
    table.append(rows.cast(wanted))
    # pyiceberg reads its file and the environment once, when it is imported.
    configured = {"catalog": {"c": {"type": "sql", "uri": f"sqlite:///{tmp_path}/ice berg/catalog.db"}}}
    monkeypatch.setattr(pyiceberg.catalog._ENV_CONFIG, "config", configured)
    follower = Follower.open(tmp_path / "home", "iceberg://c/ns.keyed")
    assert follower.refresh().lake.keys == ("id",)
    table.overwrite(
        events([1, 2, 70], label=3.0).select(["id", "time", "label"]).cast(wanted), overwrite_filter="id in (1, 2, 3)"
    )
    found = follower.refresh()
    assert (found.updated_rows, found.appended_rows, found.deleted_rows) == (2, 1, 1)
    with pytest.raises(InputError, match="namespace"):
        Follower(follower.warehouse, "iceberg://c").refresh()
    with pytest.raises(DataError, match="must be readable"):
        Follower(follower.warehouse, "iceberg://c/ns.other").refresh()


def test_values_of_every_type_are_followed(tmp_path: Path, known: SqlCatalog) -> None:
    table = known.create_table("ns.types", schema=ALL_TYPES.schema)
    table.append(ALL_TYPES)
    follower = Follower.open(tmp_path / "home", table.location().removeprefix("file://"))
    follower.refresh(time_column="time", keys=("id",))
    table.overwrite(ALL_TYPES.slice(0, 4))
    done = follower.refresh()
    assert (done.updated_rows, done.deleted_rows, done.moved_rows) == (0, 2, 4)
    assert same_rows(follower.rows(*ALL_TYPES.column_names), table.scan().to_arrow().to_pylist())


def test_a_catalog_that_fails_may_pass(
    tmp_path: Path, known: SqlCatalog, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        pyiceberg.catalog._ENV_CONFIG, "config", {"catalog": {"c": {"type": "rest", "uri": "http://127.0.0.1:9"}}}
    )
    with pytest.raises(StorageError, match="store or catalog failed") as caught:
        Follower.open(tmp_path / "home", "iceberg://c/ns.log").refresh()
    with _patient():
        raise caught.value
    assert "tried again later" in capsys.readouterr().err
    with pytest.raises(DataError), _patient():
        raise DataError("x")


def test_compressed_metadata_is_read(tmp_path: Path, known: SqlCatalog) -> None:
    table = known.create_table("ns.gz", schema=events(range(8)).schema)
    table.append(events(range(8)))
    root = Path(table.location().removeprefix("file://"))
    newest = max((root / "metadata").glob("*.metadata.json"))
    newest.with_name(newest.name.replace(".metadata", ".gz.metadata")).write_bytes(gzip.compress(newest.read_bytes()))
    newest.unlink()
    assert Follower.open(tmp_path / "home", str(root)).refresh().rows == 8


def test_a_table_that_was_copied_to_another_folder(tmp_path: Path, root: Path) -> None:
    shutil.copytree(root, tmp_path / "copy")
    shutil.rmtree(root)
    follower = Follower.open(tmp_path / "home", str(tmp_path / "copy"))
    assert follower.refresh().appended_rows == 40


def test_renamed_columns_are_other_columns_and_older_files_have_nulls(
    tmp_path: Path, follower: Follower, known: SqlCatalog, table: Table, root: Path
) -> None:
    from pyiceberg.types import StringType

    follower.refresh()
    with table.update_schema() as update:
        update.rename_column("label", "clicked")
        update.add_column("extra", StringType())
    table.append(
        events([50])
        .rename_columns(["id", "time", "country", "clicked", "tags"])
        .append_column("extra", pa.array(["x"]))
    )
    with pytest.raises(SchemaDrift, match="columns of a lake"):
        follower.refresh()
    again = Follower.open(tmp_path / "home2", str(root))
    again.refresh()
    rows = again.rows("id", "clicked", "extra")
    assert same_rows(rows, known.load_table("ns.log").scan().to_arrow().to_pylist())
    assert {row["extra"] for row in rows} == {None, "x"}


def test_a_type_that_a_lake_widens(tmp_path: Path, known: SqlCatalog) -> None:
    from pyiceberg.types import LongType

    small = events(range(8)).append_column("count", pa.array(range(8), pa.int32()))
    table = known.create_table("ns.widened", schema=small.schema)
    table.append(small)
    follower = Follower.open(tmp_path / "home", table.location().removeprefix("file://"))
    follower.refresh()
    with table.update_schema() as update:
        update.update_column("count", field_type=LongType())
    table.append(events([50]).append_column("count", pa.array([2**40])))
    done = follower.refresh()
    assert [(one.column, one.before, one.after) for one in done.schema_changes] == [("count", "int32", "int64")]
    assert sorted(row["count"] for row in follower.rows("count")) == [*range(8), 2**40]


def test_what_is_no_table_is_refused(tmp_path: Path, known: SqlCatalog) -> None:
    empty = known.create_table("ns.empty", schema=events(range(8)).schema)
    follower = Follower.open(tmp_path / "home", empty.location().removeprefix("file://"))
    with pytest.raises(DataError, match="must have the snapshot"):
        follower.refresh()
    with pytest.raises(InputError, match="number of its id"):
        follower.refresh("main")


_NAME = st.one_of(
    st.integers(0, 9).map(lambda number: f"v{number}.metadata.json"),
    st.integers(0, 9).map(lambda number: f"v{number}.gz.metadata.json"),
    st.integers(0, 40).map(lambda number: f"{number:05}-0b6a4d6b-7a7f-4a39-9a2b-2f3c6c5f2d11.metadata.json"),
    st.text(max_size=12),
)


@given(st.lists(_NAME, max_size=9), st.text(max_size=8) | st.integers(0, 9).map(str))
def test_the_newest_metadata_is_the_hinted_one_or_that_with_the_highest_number(names: list[str], hint: str) -> None:
    found = newest_metadata(names, hint)
    numbered = [name for name in names if name.endswith(".metadata.json")]
    if found is None:
        assert not numbered or all(not name.lstrip("v")[:1].isdigit() for name in numbered)
        return
    assert found in names
    if not (hint.isascii() and hint.isdigit()):
        return
    versions = {
        int(name[1:].split(".")[0]) for name in names if name.startswith("v") and name.endswith(".metadata.json")
    }
    last = int(hint)
    while last + 1 in versions:  # a hint may be older than the newest version
        last += 1
    if int(hint) in versions:
        assert found.startswith(f"v{last}.")
