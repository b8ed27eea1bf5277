"""An eviction can be undone until gc deletes its files: no order of commands loses a memo or makes a wrong one ready."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.warehouse.scenes import Clock, evict_component, model, work, work_together, write_log
from warehouse import (
    CompactionPolicy,
    ComponentQuery,
    EvictionRequest,
    Warehouse,
    collect_garbage,
    compact_memos,
    explain_model,
    mark_damaged,
    plan_eviction,
    read_fragment,
    read_solution,
    register_table,
    run_eviction,
    submit_model,
    verify_warehouse,
)
from warehouse.changes.drop_table import drop_table
from warehouse.config import WarehouseConfig
from warehouse.errors import UnknownEviction
from warehouse.eviction.history import list_evictions
from warehouse.eviction.plan import EvictionPlan
from warehouse.eviction.restore import plan_restoration, restore_evicted
from warehouse.maintenance import gc
from warehouse.solution.solution import ReadSolution


def evict_reading(warehouse: Warehouse, column: str, **given: Any) -> EvictionPlan:
    return run_eviction(warehouse, EvictionRequest(query=ComponentQuery(column=column)), why="space", **given)


def number_of(plan: EvictionPlan) -> int:
    assert plan.eviction is not None
    return plan.eviction


def values(warehouse: Warehouse, solution: ReadSolution) -> list[Any]:
    return [
        read_fragment(warehouse.storage, solution, fragment)
        for partition in solution.partitions
        for fragment in partition.fragments
    ]


@pytest.fixture
def ready(warehouse: Warehouse, log: Path) -> ReadSolution:
    """Two components over three fragments, in a file for each fragment."""
    submit_model(warehouse, model())
    while work_together(warehouse):
        pass
    return read_solution(warehouse, "ctr")


def test_what_is_restored_is_what_was_evicted(warehouse: Warehouse, ready: ReadSolution, clock: Clock) -> None:
    before = values(warehouse, ready)
    preview = plan_eviction(warehouse, EvictionRequest(query=ComponentQuery(column="query")))
    clock.advance(100)
    done = evict_reading(warehouse, "query", who="ann")
    assert read_solution(warehouse, "ctr").count("load") == 0
    (past,) = list_evictions(warehouse)
    assert (past.number, past.why, past.who, past.plan) == (done.eviction, "space", "ann", done.id)
    assert (past.memos, past.kept_memos, past.size_bytes, past.kept_bytes) == (6, 6, done.bytes, done.bytes)
    clock.advance(100)
    planned = plan_restoration(warehouse, past.number)
    restored = restore_evicted(warehouse, past.number, who="bob")
    assert vars(restored) == {**vars(planned), "done": True}
    assert (restored.memos, restored.size_bytes, restored.secs) == (6, done.bytes, pytest.approx(done.secs))
    assert (restored.collected_memos, restored.changed_memos, restored.models) == (0, 0, ("ctr",))
    after = read_solution(warehouse, "ctr")
    assert after == ready
    assert all(one.equals(other) for one, other in zip(values(warehouse, after), before, strict=True))
    assert plan_eviction(warehouse, EvictionRequest(query=ComponentQuery(column="query"))) == preview, (
        "with the times of their memos"
    )
    assert verify_warehouse(warehouse).findings == ()
    (past,) = list_evictions(warehouse)
    assert (past.kept_memos, past.restored_at, past.restored_by) == (0, clock.now, "bob")
    again = restore_evicted(warehouse, past.number)
    assert (again.memos, again.collected_memos, again.changed_memos) == (0, 0, 0)
    assert list_evictions(warehouse)[0].restored_by == "bob", "nothing was restored the second time"


def test_an_eviction_of_nothing_has_no_number(warehouse: Warehouse, ready: ReadSolution) -> None:
    evict_reading(warehouse, "query")
    assert evict_reading(warehouse, "query").eviction is None
    assert len(list_evictions(warehouse)) == 1
    with pytest.raises(UnknownEviction) as caught:
        restore_evicted(warehouse, 7)
    assert (caught.value.value, caught.value.allowed) == (7, "1 to 1")


def test_memos_of_deleted_files_are_gone(warehouse: Warehouse, ready: ReadSolution) -> None:
    number = number_of(evict_reading(warehouse, "query"))
    assert len(collect_garbage(warehouse, dry_run=False).garbage) == 3
    found = restore_evicted(warehouse, number)
    assert (found.memos, found.collected_memos, found.changed_memos) == (0, 6, 0)
    assert read_solution(warehouse, "ctr").count("load") == 0
    assert list_evictions(warehouse)[0].restored_at is None


def test_memos_of_a_file_with_others_can_be_restored_until_it_is_compacted(
    warehouse: Warehouse, ready: ReadSolution
) -> None:
    number = number_of(evict_component(warehouse, ready.inputs[0].fingerprint))
    assert collect_garbage(warehouse, dry_run=False).garbage == ()
    assert plan_restoration(warehouse, number).memos == 3
    compact_memos(warehouse, CompactionPolicy(threshold=1.0, least_gain_bytes=1), dry_run=False)
    assert restore_evicted(warehouse, number).memos == 3, "the file before compaction is there until gc"
    after = read_solution(warehouse, "ctr")
    assert after.count("load") == 6
    assert all(one.equals(other) for one, other in zip(values(warehouse, after), values(warehouse, ready), strict=True))
    assert collect_garbage(warehouse, dry_run=False).garbage == ()
    assert verify_warehouse(warehouse).findings == ()


def test_what_changed_since_is_left_as_it_is(warehouse: Warehouse, ready: ReadSolution) -> None:
    first, second = (one.fingerprint for one in ready.inputs[:2])
    number = number_of(evict_reading(warehouse, "query"))
    submit_model(warehouse, model())
    assert {one.state for one in explain_model(warehouse, "ctr")} == {"", "PENDING"}
    assert restore_evicted(warehouse, number).changed_memos == 6, "they are queued"
    while work_together(warehouse):
        pass
    other = number_of(evict_component(warehouse, first))
    found = restore_evicted(warehouse, number)
    assert (found.memos, found.changed_memos) == (0, 6), "computed, and evicted again"
    assert restore_evicted(warehouse, other).memos == 3
    assert read_solution(warehouse, "ctr").count("load") == 6
    assert second != first
    assert verify_warehouse(warehouse).findings == ()


def test_damaged_memos_and_those_of_a_dropped_table_stay_evicted(warehouse: Warehouse, ready: ReadSolution) -> None:
    number = number_of(evict_reading(warehouse, "title"))
    assert restore_evicted(warehouse, number).memos == 3
    fragment = ready.partitions[0].fragments[0]
    assert mark_damaged(warehouse, ready.inputs[1].fingerprint, fragment.files[0].path, "a bit is flipped")
    number = number_of(evict_reading(warehouse, "query"))
    drop_table(warehouse, "log", force=True)
    found = restore_evicted(warehouse, number)
    assert (found.memos, found.collected_memos) == (0, 0)
    assert found.changed_memos == list_evictions(warehouse)[0].memos


def test_a_restoration_before_gc_marks_a_file_keeps_it(
    warehouse: Warehouse, ready: ReadSolution, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = number_of(evict_reading(warehouse, "query"))
    claim = gc._claim

    def restored_first(*given: Any) -> set[int]:
        assert restore_evicted(warehouse, number).memos == 6
        return claim(*given)

    monkeypatch.setattr(gc, "_claim", restored_first)
    found = collect_garbage(warehouse, dry_run=False)
    assert (found.garbage, found.named_meanwhile) == ((), 3)
    after = read_solution(warehouse, "ctr")
    assert after == ready
    assert len(values(warehouse, after)) == 3
    assert verify_warehouse(warehouse).findings == ()


def test_gc_that_is_stopped_after_it_marked_a_file_deletes_it_the_next_time(
    warehouse: Warehouse, ready: ReadSolution, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = number_of(evict_reading(warehouse, "query"))

    def stopped(path: str) -> bool:
        raise KeyboardInterrupt(path)

    with monkeypatch.context() as patch:
        patch.setattr(warehouse.storage, "delete", stopped)
        with pytest.raises(KeyboardInterrupt):
            collect_garbage(warehouse, dry_run=False)
    found = restore_evicted(warehouse, number)
    assert (found.memos, found.collected_memos) == (0, 6), "some of the files may be gone"
    assert len(collect_garbage(warehouse, dry_run=False).garbage) == 3
    assert verify_warehouse(warehouse).findings == ()


_STEPS = st.lists(
    st.tuples(st.sampled_from(("evict", "restore", "gc", "compact", "submit", "work", "damage")), st.integers(0, 3)),
    min_size=2,
    max_size=9,
)


@pytest.mark.medium
@settings(max_examples=scaled(25))
@given(steps=_STEPS)
def test_any_order_of_commands_keeps_the_catalog_and_the_files_consistent(
    steps: list[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, clock = tmp_path_factory.mktemp("restored"), Clock()
    with Warehouse.open(WarehouseConfig(str(folder / "home")), clock=clock) as warehouse:
        register_table(warehouse, "log", str(write_log(folder / "log", hours=2)))
        submit_model(warehouse, model())
        work_together(warehouse)
        reference = values(warehouse, read_solution(warehouse, "ctr"))
        fingerprints = [one.fingerprint for one in read_solution(warehouse, "ctr").inputs[:2]]
        for step, which in steps:
            clock.advance(10)
            match step:
                case "evict" if which < 2:
                    evict_component(warehouse, fingerprints[which])
                case "evict":
                    evict_reading(warehouse, "query" if which == 2 else "title")
                case "restore":
                    for past in list_evictions(warehouse)[which : which + 1]:
                        planned = plan_restoration(warehouse, past.number)
                        assert restore_evicted(warehouse, past.number).memos == planned.memos == past.kept_memos
                case "gc":
                    collect_garbage(warehouse, dry_run=False)
                case "compact":
                    compact_memos(warehouse, CompactionPolicy(threshold=1.0, least_gain_bytes=1), dry_run=False)
                case "submit":
                    submit_model(warehouse, model())
                case "work":
                    work(warehouse)
                case "damage":
                    solution = read_solution(warehouse, "ctr")
                    paths = [file.path for file in solution.partitions[0].fragments[0].files]
                    if paths:
                        mark_damaged(warehouse, fingerprints[which % 2], paths[0], "a trial")
            found = verify_warehouse(warehouse)
            assert found.findings == (), steps
            read = values(warehouse, read_solution(warehouse, "ctr"))
            assert all(one.equals(other) for one, other in zip(read, reference, strict=True))
