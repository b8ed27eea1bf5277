"""After a change of some rows only events with their keys are computed again, and all have the values of a computation of everything."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from tests.warehouse.joins.scenes import at, clicks
from tests.warehouse.joins.test_joined_data import _saved
from tests.warehouse.joins.test_refresh import CLICKS, check_counts, column_of, model, refresh
from warehouse import submit_model
from warehouse.changes.append import append_rows
from warehouse.changes.deletion import delete_rows
from warehouse.changes.overlay import fix_columns
from warehouse.joins import repair
from warehouse.joins.preview import previewed_columns
from warehouse.tables.manifests import current_fragments, get_table

EXPRESSIONS = (
    CLICKS.count(window="50m"),
    CLICKS.latest(hr.text("country")),
    CLICKS.last(4, hr.float64("paid"), window="2h"),
    CLICKS.decayed(hr.float64("paid"), half_life="20m"),
    hr.table("clicks").by(hr.text("country"), equals=hr.text("nation")).count(),
)


@pytest.fixture
def counted(monkeypatch):
    """The events that each repair has computed; None where everything was."""
    found: list[int | None] = []
    original, computing = repair.repaired_columns, repair.joined_columns

    def joined_columns(definitions, events, *given, **options):
        found[-1] = events.num_rows
        return computing(definitions, events, *given, **options)

    def repaired(work, changed, before):
        found.append(0)
        answer = original(work, changed, before)
        if answer is None:
            found[-1] = None
        return answer

    monkeypatch.setattr(repair, "joined_columns", joined_columns)
    monkeypatch.setattr("warehouse.joins.refresh.repaired_columns", repaired)
    return found


@pytest.fixture
def joined(warehouse, folders, monkeypatch):
    monkeypatch.setattr(repair, "MOST_SHARE", 0.5)
    submit_model(
        warehouse, model(EXPRESSIONS[0].log1p(), EXPRESSIONS[1].hash_buckets(5), EXPRESSIONS[2], EXPRESSIONS[3] * 2.0)
    )
    refresh(warehouse)
    return warehouse


def late(hour: int, user: int, rows: int = 3) -> dict[str, pa.Array]:
    return {**clicks(hour, rows, seed=500), "id": pa.array([user] * rows, pa.int64())}


def check_all(warehouse) -> None:
    with warehouse.catalog.read() as connection:
        table, fragments = get_table(connection, "log"), current_fragments(connection, "log")
    definitions = {one.node.name: one.node.definition for one in EXPRESSIONS[:4]}
    for name, values in previewed_columns(warehouse, table, definitions, fragments).items():
        assert column_of(warehouse, name)[name].to_pylist() == [one for part in values for one in part.to_pylist()], (
            name
        )


def test_late_rows_of_one_user_compute_the_events_of_that_user(joined, folders, counted):
    users = column_of(joined, EXPRESSIONS[0].node.name)["user"].to_pylist()
    append_rows(joined, "clicks", [_saved(folders, late(0, user=3))])
    refresh(joined)
    assert 0 < sum(counted) <= users.count(3)
    check_all(joined)
    check_counts(joined, EXPRESSIONS[0], 3_000)


def test_rows_of_no_event_compute_none(joined, folders, counted):
    append_rows(joined, "clicks", [_saved(folders, late(0, user=99))])
    assert refresh(joined) == [(3, 0)]
    assert set(counted) == {0}


def test_much_that_changed_is_computed_from_everything(joined, folders, counted):
    append_rows(joined, "clicks", [_saved(folders, clicks(0, 200, seed=600))])
    refresh(joined)
    assert set(counted) == {None}
    check_all(joined)


def test_deleted_and_corrected_rows_are_repaired(joined, folders, counted):
    delete_rows(joined, "clicks", where=[("id", "1")])
    refresh(joined)
    check_all(joined)
    row = {name: values.slice(0, 1) for name, values in clicks(2).items() if name != "country"}
    fix_columns(
        joined,
        "clicks",
        _saved(folders, {**row, "paid": pa.array([100.0])}),
        why="x",
        on=("time", "id"),
        columns=("paid",),
    )
    refresh(joined)
    check_all(joined)
    assert counted


def test_events_that_are_corrected_are_computed_from_everything(joined, folders, counted):
    """Their values follow other keys, so those of before say nothing."""
    known = column_of(joined, EXPRESSIONS[0].node.name)
    times = known["at"].to_pylist()
    place = next(one for one in range(len(times)) if times.count(times[one]) == 1)
    fixed = {"at": known["at"].slice(place, 1).combine_chunks(), "user": pa.array([4], pa.int64())}
    fix_columns(joined, "log", _saved(folders, fixed), why="x", on=("at",), columns=("user",))
    append_rows(joined, "clicks", [_saved(folders, late(0, user=3))])
    refresh(joined)
    check_all(joined)
    assert sum(counted) < 3 * 20


def test_new_events_beside_late_rows(joined, folders, counted):
    new = {"at": at(1, [1_000.5, 2_000.25]), "user": pa.array([3, 4], pa.int64()), "clicked": pa.array([True, False])}
    append_rows(joined, "log", [_saved(folders, new)])
    append_rows(joined, "clicks", [_saved(folders, late(0, user=3))])
    refresh(joined)
    check_all(joined)
    assert np.all(np.array(counted) >= 0)
