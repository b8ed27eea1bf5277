"""Coverage always agrees with the memos."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import event, select

from tests.support.examples import scaled
from tests.warehouse.scenes import events, evict_component, model, work, write_partition
from warehouse import (
    Warehouse,
    WarehouseConfig,
    explain_model,
    read_fragment,
    read_solution,
    register_table,
    submit_model,
)
from warehouse.catalog import schema
from warehouse.files.column_files import MemoRef, NewFile
from warehouse.memos.coverage import add_coverage, enter_files, find_coverage, members_of, remove_coverage
from warehouse.tables.manifests import PlacedFragment
from warehouse.tables.table import Fragment, Overlay, content_of

_WHEN = datetime(2026, 1, 1, tzinfo=UTC)


def placed(fragment_id: str, *overlaid: str) -> PlacedFragment:
    overlays = tuple(Overlay(column, f"overlays/{column}", f"{column}-sum") for column in overlaid)
    fragment = Fragment(fragment_id, "p", (0,), 1, 1, {}, overlays=overlays)
    return PlacedFragment(1, "date=2026-01-01", 1, _WHEN, _WHEN, 0, fragment)


def new_file(path: str) -> NewFile:
    return NewFile(path, "0" * 64, 1, 10)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    with Warehouse.open(WarehouseConfig(str(tmp_path_factory.mktemp("coverage")))) as opened:
        yield opened


_STEPS = st.lists(
    st.tuples(
        st.booleans(),
        st.sampled_from(["f", "g", "h"]),
        st.sampled_from(["1" * 64, "2" * 64]),
        st.sets(st.sampled_from("abcde"), min_size=1),
    ),
    max_size=12,
)


@settings(max_examples=scaled(60))
@given(steps=_STEPS, wanted=st.sets(st.sampled_from("abcde"), min_size=1))
def test_what_is_found_is_what_was_noted(
    shared: Warehouse, steps: list[tuple[bool, str, str, set[str]]], wanted: set[str]
) -> None:
    """Against a set of (file, content, component)."""
    known: set[tuple[str, str, str]] = set()
    with shared.catalog.write() as connection:
        before = connection.begin_nested()
        ids = enter_files(connection, [new_file(path) for path in "fgh"], 0.0)
        for covers, path, content, components in steps:
            if covers:
                add_coverage(connection, {(ids[path], content): components})
                known |= {(path, content, component) for component in components}
            else:
                remove_coverage(connection, {ids[path]: components}, 0.0)
                known -= {(path, other, component) for other in ("1" * 64, "2" * 64) for component in components}
        fragments = [placed("1" * 64), placed("2" * 64), placed("3" * 64)]
        found = find_coverage(connection, dict.fromkeys(sorted(wanted), ("query",)), fragments)
        for position, each in enumerate(fragments):
            here = each.fragment.fragment_id
            slots = found.slots(position)
            assert set(slots) == {component for _, content, component in known if content == here} & wanted
            files = found.fragments[position].files
            for component, slot in slots.items():
                assert (files[slot].path, here, component) in known
            assert len(set(files)) == len(files) == len(set(slots.values())), "every file is needed, and once"
        rows = connection.execute(select(schema.coverage)).all()
        members = members_of(connection, {row.column_set for row in rows})
        assert all(members.values()), "no row without a component"
        before.rollback()


def test_the_file_that_holds_most_is_taken(shared: Warehouse) -> None:
    with shared.catalog.write() as connection:
        ids = enter_files(connection, [new_file("small"), new_file("large")], 0.0)
        add_coverage(connection, {(ids["small"], "7" * 64): {"a", "b"}, (ids["large"], "7" * 64): {"a", "b", "c"}})
        found = find_coverage(connection, dict.fromkeys("abc", ("query",)), [placed("7" * 64)])
        assert found.fragments[0].files == (MemoRef("large", "0" * 64),)


def test_an_overlaid_column_matters_to_those_that_read_it(shared: Warehouse) -> None:
    plain, changed = placed("8" * 64), placed("8" * 64, "clicked", "spam")
    seen = content_of(changed.fragment, ["clicked"])
    assert seen != content_of(plain.fragment, ["clicked"])
    with shared.catalog.write() as connection:
        ids = enter_files(connection, [new_file("base"), new_file("late")], 0.0)
        add_coverage(connection, {(ids["base"], "8" * 64): {"a", "b"}, (ids["late"], seen): {"b"}})
        found = find_coverage(connection, {"a": ("query",), "b": ("query", "clicked")}, [plain, changed])
        assert [ref.path for ref in found.fragments[0].files] == ["base"]
        assert {one: found.fragments[1].files[slot].path for one, slot in found.slots(1).items()} == {
            "a": "base",
            "b": "late",
        }


def test_a_file_without_live_memos_is_marked_unreferenced(warehouse: Warehouse, log: Path) -> None:
    submit_model(warehouse, model())
    work(warehouse)
    solution = read_solution(warehouse, "ctr")
    table = read_fragment(warehouse.storage, solution, solution.partitions[0].fragments[0])
    evict_component(warehouse, solution.inputs[0].fingerprint, why="space")
    with warehouse.catalog.read() as connection:
        files = connection.execute(select(schema.memo_files)).all()
    assert sorted(row.condemned_at is not None for row in files) == [False] * 3 + [True] * 3
    assert all((row.live_bytes == 0) == (row.condemned_at is not None) for row in files)
    after = read_solution(warehouse, "ctr")
    assert after.count("compute") == 3
    assert read_fragment(warehouse.storage, after, after.partitions[0].fragments[0]).equals(table)


def test_a_rewritten_file_is_looked_up_by_key_once(warehouse: Warehouse, log: Path) -> None:
    """Its content changed, not the columns that the model reads: the memos are ready, and are found at once afterwards."""
    submit_model(warehouse, model())
    work(warehouse)
    write_partition(log, 0, events(20, seed=0).append_column("more", [[1] * 20]))
    for hour in (1, 2):
        write_partition(log, hour, events(20, seed=hour).append_column("more", [[1] * 20]))
    (log.parent / "other").mkdir()
    register_table(warehouse, "copy", str(log))
    assert read_solution(warehouse, "ctr").count("load") == 6
    again = submit_model(warehouse, model("copied"), table="copy")
    assert (again.hits, again.queued) == (6, 0)
    assert all(one.hit for one in explain_model(warehouse, "copied"))
    assert read_solution(warehouse, "copied").count("load") == 6
    statements: list[str] = []
    event.listen(warehouse.catalog._engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    assert submit_model(warehouse, model("copied"), table="copy").hits == 6
    assert not any("FROM memos" in statement for statement in statements)
