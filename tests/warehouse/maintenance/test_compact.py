"""Compaction: the chosen files, equal values, and concurrent processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from tests.warehouse.scenes import Clock, events, evict_component, model, work, work_together, write_partition
from transforms.errors import InputError
from warehouse import (
    CompactionPolicy,
    Warehouse,
    collect_garbage,
    compact_memos,
    pinned_solution,
    read_fragment,
    read_solution,
    register_table,
    submit_model,
    verify_warehouse,
)
from warehouse.catalog import schema
from warehouse.errors import MemoDamaged
from warehouse.maintenance import compact as compact_module
from warehouse.maintenance.compact_table import compact_table
from warehouse.maintenance.compaction import FileShare, Rewrite, choose_rewrites
from warehouse.maintenance.small_fragments import MergePolicy
from warehouse.solution.solution import ReadSolution

pytestmark = pytest.mark.usefixtures("log")

ANY_GAIN = CompactionPolicy(threshold=0.9, least_gain_bytes=1, small_bytes=0)
MERGE = CompactionPolicy(threshold=0, many_files=2)


def must_not_be(key: str, path: str, error: MemoDamaged) -> None:
    pytest.fail(f"damaged: {key} in {path}: {error}")


def tables(warehouse: Warehouse, solution: ReadSolution, *, undamaged: bool = True) -> list[pa.Table]:
    report = must_not_be if undamaged else None
    return [read_fragment(warehouse.storage, solution, one, on_damage=report) for one in solution.fragments]


def memo_files(warehouse: Warehouse) -> list[Path]:
    return sorted(path for path in (Path(warehouse.config.home) / "memos").rglob("*") if path.is_file())


def test_sparse_files_lose_their_dead_columns(warehouse: Warehouse) -> None:
    submit_model(warehouse, model(inputs=5))
    work_together(warehouse)
    before = read_solution(warehouse, "ctr")
    expected = tables(warehouse, before)
    evict_component(warehouse, before.inputs[1].fingerprint)
    old = memo_files(warehouse)
    planned = compact_memos(warehouse, ANY_GAIN)
    assert (planned.dry_run, planned.old_files, planned.new_files, planned.memos) == (True, 3, 3, 0)
    assert memo_files(warehouse) == old
    done = compact_memos(warehouse, ANY_GAIN, dry_run=False)
    assert (done.old_files, done.new_files, done.memos, done.left, done.damaged) == (3, 3, 12, 0, ())
    after = read_solution(warehouse, "ctr")
    assert (after.count("load"), after.count("compute")) == (12, 3)
    assert tables(warehouse, after) == expected == tables(warehouse, before)
    assert verify_warehouse(warehouse).findings == ()
    assert len(memo_files(warehouse)) == 6, "the old ones are condemned, and gone with the next collection"
    assert collect_garbage(warehouse, dry_run=False).by_kind()["unreferenced memos"][0] == 3
    assert not set(memo_files(warehouse)) & set(old)
    assert sum(path.stat().st_size for path in memo_files(warehouse)) == done.written_bytes
    assert compact_memos(warehouse, ANY_GAIN, dry_run=False).new_files == 0


def test_many_small_files_become_one(warehouse: Warehouse) -> None:
    submit_model(warehouse, model(inputs=5))
    work(warehouse)
    expected = tables(warehouse, read_solution(warehouse, "ctr"))
    assert len(memo_files(warehouse)) == 15
    assert compact_memos(warehouse, CompactionPolicy(), dry_run=False).new_files == 0, "five are not many"
    done = compact_memos(warehouse, MERGE, dry_run=False)
    assert (done.old_files, done.new_files, done.memos) == (15, 3, 15)
    collect_garbage(warehouse, dry_run=False)
    assert len(memo_files(warehouse)) == 3
    after = read_solution(warehouse, "ctr")
    assert {len(fragment.files) for fragment in after.fragments} == {1}
    assert tables(warehouse, after) == expected
    assert verify_warehouse(warehouse, recompute=15).findings == ()


def test_a_pinned_reader_keeps_the_old_files(warehouse: Warehouse) -> None:
    submit_model(warehouse, model(inputs=3))
    work(warehouse)
    with pinned_solution(warehouse, "ctr", holder="job") as solution:
        expected = tables(warehouse, solution)
        assert compact_memos(warehouse, MERGE, dry_run=False).old_files == 9
        assert collect_garbage(warehouse, dry_run=False).pinned == 9
        assert tables(warehouse, solution) == expected
    assert collect_garbage(warehouse, dry_run=False).rows == 9
    assert tables(warehouse, solution, undamaged=False) == expected, "computed: the files are gone"


@pytest.mark.slow
@pytest.mark.parametrize("command", ["compact", "table compact"])
def test_a_compaction_that_waits_for_other_writers_spares_the_readers_since(
    warehouse: Warehouse, clock: Clock, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    submit_model(warehouse, model(inputs=3))
    work(warehouse)
    run = warehouse.catalog.run
    with ExitStack() as job:
        solutions = []

        def wait_then_run(action: Any, **options: Any) -> Any:
            monkeypatch.setattr(warehouse.catalog, "run", run)
            clock.advance(10 * warehouse.config.pin_ttl_secs)
            solutions.append(job.enter_context(pinned_solution(warehouse, "ctr", holder="job")))
            return run(action, **options)

        monkeypatch.setattr(warehouse.catalog, "run", wait_then_run)
        if command == "compact":
            compact_memos(warehouse, MERGE, dry_run=False)
        else:
            compact_table(warehouse, "log", MergePolicy())
        collect_garbage(warehouse, dry_run=False)
        assert len(tables(warehouse, solutions[0])) == 3


def test_memos_ready_under_another_content_move_along(warehouse: Warehouse, log: Path) -> None:
    """The label changed: the same memos serve both contents of the fragment."""
    submit_model(warehouse, model(inputs=3))
    work(warehouse)
    write_partition(log, 0, events(20, 0, clicked=pa.array([True] * 20)))
    register_table(warehouse, "log", str(log))
    submit_model(warehouse, model(inputs=3))
    assert read_solution(warehouse, "ctr").count("load") == 9
    compact_memos(warehouse, MERGE, dry_run=False)
    collect_garbage(warehouse, dry_run=False)
    assert read_solution(warehouse, "ctr").count("load") == 9
    assert verify_warehouse(warehouse).findings == ()


def test_damaged_columns_are_reported_and_left_out(warehouse: Warehouse) -> None:
    submit_model(warehouse, model(inputs=3))
    work(warehouse)
    expected = tables(warehouse, read_solution(warehouse, "ctr"))
    bad, *_ = memo_files(warehouse)
    bad.write_bytes(bad.read_bytes()[:-40])
    done = compact_memos(warehouse, MERGE, dry_run=False)
    assert (done.memos, len(done.damaged)) == (8, 1)
    assert done.damaged[0].startswith(str(bad.relative_to(warehouse.config.home)))
    assert verify_warehouse(warehouse).findings == ()
    assert work(warehouse) == 1, "it was queued again for the model that reads it"
    assert tables(warehouse, read_solution(warehouse, "ctr")) == expected


def _between(monkeypatch: pytest.MonkeyPatch, action: object) -> None:
    """Do something once the new file is written, before the memos are moved."""
    swap = compact_module._swap
    waiting = [action]

    def act_first(*args: object) -> object:
        if waiting:
            waiting.pop()()  # type: ignore[operator]
        return swap(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(compact_module, "_swap", act_first)


def test_memos_that_were_evicted_meanwhile_are_left_out(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    submit_model(warehouse, model(inputs=3))
    work(warehouse)
    gone = read_solution(warehouse, "ctr").inputs[0].fingerprint
    _between(monkeypatch, lambda: evict_component(warehouse, gone))
    done = compact_memos(warehouse, MERGE, dry_run=False)
    assert (done.memos, done.left) == (6, 1), "the other two fragments were read after the eviction"
    assert read_solution(warehouse, "ctr").count("load") == 6
    assert verify_warehouse(warehouse).findings == ()


def test_of_two_compactions_the_second_moves_nothing(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    submit_model(warehouse, model(inputs=3))
    work(warehouse)
    _between(monkeypatch, lambda: compact_memos(warehouse, MERGE, dry_run=False))
    done = compact_memos(warehouse, MERGE, dry_run=False)
    assert (done.new_files, done.memos, done.left) == (0, 0, 3)
    collect_garbage(warehouse, dry_run=False)
    assert len(memo_files(warehouse)) == 3, "what it wrote for nothing is gone"
    assert verify_warehouse(warehouse).findings == ()


def test_a_new_file_that_was_swept_away_is_not_named(
    warehouse: Warehouse, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit_model(warehouse, model(inputs=3))
    work(warehouse)
    _between(monkeypatch, lambda: collect_garbage(warehouse, dry_run=False, leftover_secs=-1e10))
    done = compact_memos(warehouse, MERGE, dry_run=False)
    assert (done.new_files, done.memos, done.left) == (2, 6, 3)
    assert verify_warehouse(warehouse).findings == ()


def test_a_killed_compaction_leaves_a_file_that_nothing_names(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit_model(warehouse, model(inputs=3))
    work(warehouse)

    def die() -> None:
        raise KeyboardInterrupt

    _between(monkeypatch, die)
    with pytest.raises(KeyboardInterrupt):
        compact_memos(warehouse, MERGE, dry_run=False)
    assert len(memo_files(warehouse)) == 10
    assert collect_garbage(warehouse, dry_run=False).garbage == (), "it may be about to name it"
    assert collect_garbage(warehouse, dry_run=False, leftover_secs=-1e10).by_kind()["orphan memos"][0] == 1
    with warehouse.catalog.read() as connection:
        assert len(connection.execute(select(schema.memo_files)).all()) == 9


@pytest.mark.parametrize(
    "wrong", [{"threshold": 1.1}, {"threshold": float("nan")}, {"many_files": 1}, {"least_gain_bytes": 0}]
)
def test_policies_that_mean_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError) as refused:
        CompactionPolicy(**wrong)  # type: ignore[arg-type]
    assert repr(next(iter(wrong.values()))) in str(refused.value)


@st.composite
def shares(draw: st.DrawFn) -> list[FileShare]:
    """Files of a few fragments; a component may be in two files of one group, as overlays can have it."""
    made = []
    for number in range(draw(st.integers(0, 14))):
        size = draw(st.integers(1, 3000))
        held = draw(st.frozensets(st.sampled_from("abcdef"), min_size=1, max_size=3))
        group, rows = draw(st.sampled_from("xy")), draw(st.sampled_from((5, 6)))
        made.append(FileShare(number, f"f{number}", group, rows, size, draw(st.integers(0, size)), held))
    return made


policies = st.builds(
    CompactionPolicy,
    threshold=st.floats(0, 1),
    least_gain_bytes=st.integers(1, 2000),
    small_bytes=st.integers(0, 3000),
    many_files=st.integers(2, 5),
    most_bytes=st.integers(1, 6000),
)


def rewritten(files: Collection[FileShare], rewrites: Collection[Rewrite]) -> list[FileShare]:
    """The files as they are afterwards, if every column takes what it took."""
    gone = {file.file for one in rewrites for file in one.files}
    left = [file for file in files if file.file not in gone]
    for number, one in enumerate(rewrites):
        held = frozenset[str]().union(*(file.components for file in one.files))
        new = 1 + max(file.file for file in files) + number
        live = one.live_bytes
        left.append(replace(one.files[0], file=new, components=held, size_bytes=live, live_bytes=live))
    return left


@pytest.mark.medium
@given(shares(), policies)
def test_the_laws_of_choosing(files: list[FileShare], policy: CompactionPolicy) -> None:
    rewrites = choose_rewrites(files, policy)
    assert choose_rewrites(list(reversed(files)), policy) == rewrites, "the order of a listing does not matter"
    times = Counter(file.file for one in rewrites for file in one.files)
    assert set(times.values()) <= {1}
    for one in rewrites:
        assert len({(file.group, file.rows) for file in one.files}) == 1
        assert sum(len(file.components) for file in one.files) == len(
            frozenset[str]().union(*(file.components for file in one.files))
        ), "no component is in two of its files"
        assert len(one.files) == 1 or one.live_bytes <= policy.most_bytes
        assert len(one.files) > 1 or policy.is_sparse(one.files[0])
    chosen = set(times)
    for file in files:
        if policy.is_sparse(file):
            assert file.file in chosen, "every sparse file is rewritten"
        elif file.file in chosen:
            assert policy.is_small(file)


@given(shares(), policies)
def test_repeated_choosing_terminates(files: list[FileShare], policy: CompactionPolicy) -> None:
    cost = len(files), sum(file.dead_bytes for file in files)
    while rewrites := choose_rewrites(files, policy):
        files = rewritten(files, rewrites)
        now = len(files), sum(file.dead_bytes for file in files)
        assert now[0] <= cost[0]
        assert now[1] <= cost[1]
        assert now != cost, "each round frees bytes or files"
        cost = now
