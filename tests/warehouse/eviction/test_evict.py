from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import event, insert, select

from tests.support.examples import scaled
from tests.warehouse.scenes import Clock, evict_component, model, pretended, work
from tests.warehouse.small_catalogs import (
    COMPONENTS,
    DAY,
    FINGERPRINTS,
    SmallCatalog,
    SomeMemo,
    SomeModel,
    file_of,
    small_catalogs,
    write_catalog,
)
from transforms.comparison.pattern import Pattern
from transforms.errors import InputError
from warehouse import (
    ComponentQuery,
    EvictionRequest,
    Warehouse,
    commit_memos,
    explain_model,
    lease_tasks,
    pinned_solution,
    plan_eviction,
    read_fragment,
    read_solution,
    run_eviction,
    search_components,
    submit_model,
    write_memo_file,
)
from warehouse.catalog import schema
from warehouse.errors import PlanChanged
from warehouse.eviction import evict as evicting
from warehouse.maintenance.compact_table import compact_table
from warehouse.scheduling.task_states import MemoState

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def memo_files(tmp_path: Path) -> list[Path]:
    return sorted(path for path in (tmp_path / "home/memos").rglob("*") if path.is_file())


def reading(column: str) -> EvictionRequest:
    return EvictionRequest(query=ComponentQuery(column=column))


def pin(warehouse: Warehouse, fingerprint: str, expires_at: float) -> None:
    with warehouse.catalog.write() as connection:
        connection.execute(insert(schema.pins).values(id="1", holder="train 7", model=1, table_name="log",
                                                      created_at=0.0, expires_at=expires_at))  # fmt: skip
        connection.execute(insert(schema.pin_components).values(pin="1", fingerprint=fingerprint))


@pytest.mark.usefixtures("log")
def test_what_is_done_is_what_the_dry_run_said(warehouse: Warehouse, tmp_path: Path) -> None:
    submit_model(warehouse, model("one"))
    submit_model(warehouse, model("two", inputs=1))
    work(warehouse)
    solution = read_solution(warehouse, "one")
    request = EvictionRequest(query=ComponentQuery(fingerprint=solution.inputs[0].fingerprint))
    planned = plan_eviction(warehouse, request)
    assert (planned.done, planned.memos, planned.rows, planned.models) == (False, 3, 60, ("one", "two"))
    assert (planned.files_deleted, planned.files_rewritten, planned.dead_bytes) == (3, 0, 0)
    assert (planned.needed_memos, planned.needed_secs) == (3, 1.5)
    assert read_solution(warehouse, "one") == solution
    done = run_eviction(warehouse, request, why="space", plan=planned.id)
    assert vars(done) == {**vars(planned), "done": True, "eviction": 1}
    assert len(memo_files(tmp_path)) == 6, "files are deleted by gc alone"
    nothing = plan_eviction(warehouse, request)
    assert (nothing.memos, nothing.files_deleted, nothing.models) == (0, 0, ())


@pytest.mark.usefixtures("log")
def test_another_plan_than_the_one_that_was_shown_is_refused(warehouse: Warehouse) -> None:
    submit_model(warehouse, model())
    work(warehouse, most=1)
    planned = plan_eviction(warehouse, reading("query"))
    work(warehouse)
    with pytest.raises(PlanChanged) as caught:
        run_eviction(warehouse, reading("query"), why="space", plan=planned.id)
    assert caught.value.where == f"plan {planned.id}"
    assert read_solution(warehouse, "ctr").count("load") == 6


@pytest.mark.usefixtures("log")
def test_a_model_without_memos_can_be_read(warehouse: Warehouse) -> None:
    submit_model(warehouse, model())
    work(warehouse)
    before = read_solution(warehouse, "ctr")
    fragment = before.partitions[0].fragments[0]
    table = read_fragment(warehouse.storage, before, fragment)
    evict_component(warehouse, before.inputs[0].fingerprint)
    after = read_solution(warehouse, "ctr")
    assert after.count("compute") == 3
    assert read_fragment(warehouse.storage, after, after.partitions[0].fragments[0]).equals(table)
    assert read_fragment(warehouse.storage, before, fragment).equals(table), "a solution made before the eviction"


@pytest.mark.usefixtures("log")
def test_a_file_that_others_need_is_to_be_rewritten(warehouse: Warehouse) -> None:
    submit_model(warehouse, model())
    tasks = lease_tasks(warehouse, "w", limit=100)
    write_memo_file(warehouse.storage, "memos/all.memo", {"c": pa.array(range(20))})
    written = pretended("memos/all.memo", size_bytes=10)
    assert all(commit_memos(warehouse, [(task, written) for task in tasks]))
    first, second = (item.fingerprint for item in read_solution(warehouse, "ctr").inputs[:2])
    some = evict_component(warehouse, first)
    assert (some.files_deleted, some.files_rewritten, some.dead_bytes) == (0, 1, 30)
    rest = evict_component(warehouse, second)
    assert (rest.files_deleted, rest.deleted_bytes, rest.dead_bytes) == (1, 10, 0)


@pytest.mark.usefixtures("log")
def test_queued_and_running_tasks_are_left_alone(warehouse: Warehouse) -> None:
    submit_model(warehouse, model(inputs=1))
    lease_tasks(warehouse, "w", limit=1)
    assert evict_component(warehouse, read_solution(warehouse, "ctr").inputs[0].fingerprint).memos == 0
    assert {one.state for one in explain_model(warehouse, "ctr")} == {"", "RUNNING", "PENDING"}


@pytest.mark.usefixtures("log")
def test_what_a_job_has_pinned_stays_until_the_pin_runs_out(warehouse: Warehouse, clock: Clock) -> None:
    submit_model(warehouse, model())
    work(warehouse)
    pinned = read_solution(warehouse, "ctr").inputs[0].fingerprint
    pin(warehouse, pinned, clock.now + 1)
    some = run_eviction(warehouse, reading("query"), why="space")
    assert (some.components, some.memos, some.pinned_memos) == (1, 3, 3)
    assert [(one.holder, one.components) for one in some.pinned] == [("train 7", 1)]
    assert read_solution(warehouse, "ctr").count("load") == 3
    clock.advance(1)
    assert run_eviction(warehouse, reading("query"), why="space").memos == 3


@pytest.mark.usefixtures("log")
def test_a_tombstone_records_time_reason_memo_and_user(warehouse: Warehouse, clock: Clock) -> None:
    submit_model(warehouse, model())
    work(warehouse)
    clock.now = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    query = ComponentQuery(pattern=Pattern.parse("unigrams(title)"), operator="hash_buckets@1")
    run_eviction(warehouse, EvictionRequest(query=query), why="wrong buckets", who="ann")
    (reason,) = {one.reason for one in explain_model(warehouse, "ctr") if one.reason_code == "evicted"}
    said = "wrong buckets [operator hash_buckets@1, pattern unigrams(title); by ann]"
    assert reason.startswith(f"evicted on 2026-01-01 ({said})")


@pytest.mark.usefixtures("log")
def test_refusals(warehouse: Warehouse) -> None:
    submit_model(warehouse, model())
    with pytest.raises(InputError, match="must be a reason"):
        evict_component(warehouse, read_solution(warehouse, "ctr").inputs[0].fingerprint, why=" ")
    with pytest.raises(InputError) as caught:
        run_eviction(warehouse, reading("pryce"), why="space")
    assert "price" in caught.value.allowed


@st.composite
def requests(draw: st.DrawFn, small: SmallCatalog) -> EvictionRequest:
    moments = st.integers(0, 40).map(lambda quarter: quarter * DAY / 4)
    hours = st.integers(0, 4).map(lambda hour: _EPOCH + timedelta(hours=hour))
    possible: dict[str, st.SearchStrategy[Any]] = {
        "start": hours,
        "end": hours,
        "written_before": moments,
        "written_after": moments,
        "budget_bytes": st.integers(0, 300),
        "query": st.sampled_from(
            (ComponentQuery(operator="unigrams"), ComponentQuery(subgraph=FINGERPRINTS[0]), ComponentQuery(column="title"),
             ComponentQuery(pattern=Pattern.parse("lower(query)")), ComponentQuery(table="log"),
             ComponentQuery(model=small.models[0].name))
        ),
    }  # fmt: skip
    chosen = draw(st.lists(st.sampled_from(sorted(possible)), unique=True, min_size=1, max_size=3))
    return EvictionRequest(**{name: draw(possible[name]) for name in chosen})


def fits(small: SmallCatalog, request: EvictionRequest, memo: SomeMemo) -> bool:
    start = _EPOCH + timedelta(hours=memo.hour)
    return (
        memo.state is MemoState.READY
        and small.finds(request.query, memo.component)
        and request.query.table in (None, memo.table)
        and (request.start is None or start >= request.start)
        and (request.end is None or start < request.end)
        and (request.written_before is None or memo.changed_at < request.written_before)
        and (request.written_after is None or memo.changed_at >= request.written_after)
    )


def order(small: SmallCatalog, memo: SomeMemo) -> tuple[Any, ...]:
    """The documented order, from what it says."""
    having = small.having(memo.component)
    asked = [memo.created_at, *(at for model in having for at in model.submitted)]
    for one in having:
        for first, last, at in one.reads:
            if one.table == memo.table and (first or 0) <= memo.hour * 3600 < (math.inf if last is None else last):
                asked.append(at)
    readers = sum(model.live for model in having)
    worth = memo.secs * max(readers, 1) / memo.size_bytes
    return readers > 0, max(asked) // DAY, worth, FINGERPRINTS[memo.component], memo.key


def expected(small: SmallCatalog, request: EvictionRequest, free: list[SomeMemo]) -> list[SomeMemo]:
    if request.budget_bytes is None:
        return free
    left = sum(memo.size_bytes for memo in small.memos if memo.state is MemoState.READY)
    gone = []
    for memo in sorted(free, key=lambda one: order(small, one)):
        if left <= request.budget_bytes:
            break
        gone.append(memo)
        left -= memo.size_bytes
    return gone


@pytest.mark.slow
@settings(max_examples=scaled(60))
@given(data=st.data(), small=small_catalogs(), batch=st.sampled_from((1, 3, 100_000)))
def test_an_eviction_takes_what_a_naive_one_does(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, data: st.DataObject, small: SmallCatalog, batch: int
) -> None:
    write_catalog(warehouse, small, warehouse.clock())
    monkeypatch.setattr(evicting, "BATCH_MEMOS", batch)
    pinned = {at for _, held, expires_in in small.pins if expires_in > 0 for at in held}
    for request in data.draw(st.lists(requests(small), min_size=3, max_size=6)):
        check_request(warehouse, small, request, pinned)
    fitting = [memo for memo in small.memos if fits(small, request, memo)]
    gone = expected(small, request, [memo for memo in fitting if memo.component not in pinned])
    plan = plan_eviction(warehouse, request)
    before = ready_keys(warehouse)
    done = run_eviction(warehouse, request, why="test", plan=plan.id)
    assert vars(done) == {**vars(plan), "done": True, "eviction": done.eviction}
    assert (done.eviction is None) == (not gone)
    assert ready_keys(warehouse) == before - {memo.key for memo in gone}
    check_catalog(warehouse, small, gone, plan.deleted_bytes)


def check_request(warehouse: Warehouse, small: SmallCatalog, request: EvictionRequest, pinned: set[int]) -> None:
    fitting = [memo for memo in small.memos if fits(small, request, memo)]
    gone = expected(small, request, [memo for memo in fitting if memo.component not in pinned])
    plan = plan_eviction(warehouse, request)
    check_plan(small, request, gone, plan)
    assert plan.pinned_memos == sum(memo.component in pinned for memo in fitting)


def check_plan(small: SmallCatalog, request: EvictionRequest, gone: list[SomeMemo], plan: Any) -> None:
    touched = {memo.component for memo in gone}
    readers = {at: sorted({one.name for one in small.readers(at) if one.live}) for at in touched}
    needed = [memo for memo in gone if readers[memo.component]]
    ready = [memo for memo in small.memos if memo.state is MemoState.READY]
    files = {file_of(memo) for memo in gone}
    rewritten = {file_of(memo) for memo in ready if memo not in gone} & files
    assert (plan.memos, plan.components, plan.rows) == (len(gone), len(touched), 10 * len(gone))
    assert (plan.bytes, plan.secs) == (sum(memo.size_bytes for memo in gone), sum(memo.secs for memo in gone))
    assert plan.models == tuple(sorted({name for names in readers.values() for name in names}))
    assert (plan.needed_memos, plan.needed_secs) == (len(needed), sum(memo.secs for memo in needed))
    assert (plan.files_deleted, plan.files_rewritten) == (len(files - rewritten), len(rewritten))
    assert plan.dead_bytes == sum(memo.size_bytes for memo in gone if file_of(memo) in rewritten)
    assert plan.stored_bytes == sum(memo.size_bytes for memo in ready)


def ready_keys(warehouse: Warehouse) -> set[str]:
    of = schema.memos.c
    with warehouse.catalog.read() as connection:
        return set(connection.execute(select(of.memo_key).where(of.state == MemoState.READY)).scalars())


def check_catalog(warehouse: Warehouse, small: SmallCatalog, gone: list[SomeMemo], deleted_bytes: int) -> None:
    """Files, their live bytes and coverage say what the memos say."""
    left = [memo for memo in small.memos if memo.state is MemoState.READY and memo not in gone]
    files, members = schema.memo_files.c, schema.set_members.c
    with warehouse.catalog.read() as connection:
        stored = {row.path: row for row in connection.execute(select(schema.memo_files))}
        covered = {tuple(row) for row in connection.execute(
            select(files.path, members.fingerprint)
            .join(schema.coverage, schema.coverage.c.file == files.id)
            .join(schema.set_members, members.column_set == schema.coverage.c.column_set)
        )}  # fmt: skip
    assert covered == {(file_of(memo), FINGERPRINTS[memo.component]) for memo in left}
    condemned = {path for path, row in stored.items() if row.condemned_at is not None}
    assert condemned == set(stored) - {file_of(memo) for memo in left}
    assert sum(stored[path].size_bytes for path in condemned) == deleted_bytes
    for path, row in stored.items():
        assert row.live_bytes == sum(memo.size_bytes for memo in left if file_of(memo) == path)


def test_statements_grow_with_chunks_and_not_with_memos(warehouse: Warehouse) -> None:
    def statements(hours: int) -> int:
        memos = tuple(SomeMemo(at, "log", hour, MemoState.READY, at, 5, 0.5, 0.0, 0.0)
                      for at in range(len(COMPONENTS)) for hour in range(hours))  # fmt: skip
        every = tuple(range(len(COMPONENTS)))
        one = SomeModel("a", 1, True, "east", "log", frozenset(every), (0.0,), ())
        write_catalog(warehouse, SmallCatalog(every, (0.0,) * len(every), (one,), memos), warehouse.clock())
        said: list[str] = []
        engine = warehouse.catalog._engine

        def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
            said.append(statement)

        event.listen(engine, "before_cursor_execute", note)
        try:
            assert run_eviction(
                warehouse, EvictionRequest(query=ComponentQuery(fingerprint=FINGERPRINTS[0][:4])), why="x"
            ).memos
        finally:
            event.remove(engine, "before_cursor_execute", note)
        return len(said)

    assert statements(hours=4) == statements(hours=1)


@pytest.mark.usefixtures("log")
def test_every_memo_that_contains_a_subgraph(warehouse: Warehouse) -> None:
    submit_model(warehouse, model(inputs=5))
    work(warehouse)
    unigrams = next(node for node in read_solution(warehouse, "ctr").inputs[0].root.args)
    done = run_eviction(warehouse, EvictionRequest(query=ComponentQuery(subgraph=unigrams.identity)), why="space")
    assert done.components == 2
    left = search_components(warehouse, ComponentQuery(state=MemoState.READY)).components
    assert all("unigrams(query)" not in row.expression for row in left)
    assert len(left) == 3


def at_hour(hour: int) -> datetime:
    return datetime(2026, 1, 1, hour, tzinfo=UTC)


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize(
    ("start", "end", "memos"),
    [(None, 1, 0), (None, 2, 0), (1, None, 0), (1, 2, 0), (0, 3, 2), (None, 3, 2), (0, None, 2)],
)
def test_a_range_takes_a_merged_fragment_with_all_of_its_partitions(
    warehouse: Warehouse, start: int | None, end: int | None, memos: int
) -> None:
    submit_model(warehouse, model())
    work(warehouse)
    assert compact_table(warehouse, "log").merged == 1
    bounds = [None if hour is None else at_hour(hour) for hour in (start, end)]
    request = EvictionRequest(start=bounds[0], end=bounds[1])
    pin(warehouse, read_solution(warehouse, "ctr").inputs[0].fingerprint, warehouse.clock() + 10)
    plan = plan_eviction(warehouse, request)
    assert (plan.memos, plan.pinned_memos) == (memos // 2, memos // 2)
    assert run_eviction(warehouse, request, why="space").memos == memos // 2


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize("read", ["one", "two"])
def test_a_merged_fragment_was_read_when_any_of_its_partitions_was(
    warehouse: Warehouse, clock: Clock, read: str
) -> None:
    submit_model(warehouse, model("one", inputs=1))
    submit_model(warehouse, model("two", inputs=1, buckets=7))
    work(warehouse)
    assert compact_table(warehouse, "log").merged == 1
    clock.advance(2 * DAY)
    with pinned_solution(warehouse, read, holder="test", start=at_hour(2)) as solution:
        assert [partition.start for partition in solution.partitions] == [at_hour(2)]
    stored = plan_eviction(warehouse, EvictionRequest(query=ComponentQuery(table="log"))).stored_bytes
    assert run_eviction(warehouse, EvictionRequest(budget_bytes=stored - 1), why="space").memos == 1
    assert read_solution(warehouse, read).count("load") == 3
