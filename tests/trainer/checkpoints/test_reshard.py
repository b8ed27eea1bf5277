"""A commit that is written in another partition holds the same bits; damaged commits and other plans are refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.checkpoints.job_states import checkpoint, publish_all
from trainer.checkpoints.checkpoint import write_checkpoint
from trainer.checkpoints.commit_manifest import table_of
from trainer.checkpoints.local_run import LocalRun
from trainer.checkpoints.manifest import signed_text
from trainer.checkpoints.read import Checkpoint, open_commit, read_commit, verify_commit
from trainer.checkpoints.reshard import reshard_commit
from trainer.checkpoints.stored_commit import Share
from trainer.errors import ConfigError, TornCheckpoint
from trainer.planning.plan import PartitionPlan, Slice, TablePlan, cyclic_plan

NAME = "epoch-000002"
#: The tables of :func:`job_states.state` after two epochs: at most 120 rows.
TABLES = (("user", 120, 4), ("words", 120, 2))


@st.composite
def plans(draw: st.DrawFn) -> PartitionPlan:
    """A partition of the tables, or over hosts alone."""
    cores = draw(st.integers(1, 6))
    if draw(st.booleans()):
        return PartitionPlan(cores, ())
    return PartitionPlan(cores, tuple(_table(draw, cores, *one) for one in TABLES))


def _table(draw: st.DrawFn, cores: int, name: str, rows: int, columns: int) -> TablePlan:
    def some_cores() -> tuple[int, ...]:
        return tuple(draw(st.permutations(range(cores))))[: draw(st.integers(1, cores))]

    if draw(st.integers(0, 3)) == 0:
        return TablePlan(name, rows, columns, (Slice(0, columns, some_cores()),), is_replicated=True)
    ends = sorted({*draw(st.lists(st.integers(1, columns), max_size=3)), columns})
    slices = []
    for first, end in zip((0, *ends), ends, strict=False):
        own = some_cores()
        inner = st.lists(st.integers(0, rows), min_size=len(own) - 1, max_size=len(own) - 1)
        blocks = (*sorted(draw(inner)), rows) if draw(st.booleans()) else ()
        slices.append(Slice(first, end - first, own, blocks))
    return TablePlan(name, rows, columns, tuple(slices))


def reshard(run: Path, to: Path, plan: PartitionPlan, window_bytes: int = 64, *, is_of_towers: bool = False) -> None:
    files, folder = LocalRun(run / "checkpoints"), to / "checkpoints"
    reshard_commit(files, open_commit(files, NAME), plan, folder, window_bytes=window_bytes, is_of_towers=is_of_towers)


def read(run: Path, share: Share | None = None) -> Checkpoint:
    return read_commit(LocalRun(run / "checkpoints"), NAME, share)


def assert_same(found: Checkpoint, expected: Checkpoint) -> None:
    """Bit-equal arrays, and documents with the same members."""
    assert found.document == expected.document
    assert found.arrays.keys() == expected.arrays.keys()
    for name, array in expected.arrays.items():
        ours = found.arrays[name]
        assert (ours.dtype, ours.shape, ours.tobytes()) == (array.dtype, array.shape, array.tobytes()), name


def write_alone(run: Path, found: Checkpoint) -> None:
    """The checkpoint of a single process."""
    assert isinstance(found.document, dict)
    write_checkpoint(run, found.epochs_done, found.document, found.arrays, keep=2)


def row_wise(found: Checkpoint, *, rows: bool = True) -> Checkpoint:
    """With one slot value a row in the table of users; with no changed rows at all without ``rows``."""
    arrays = dict(found.arrays)
    arrays["embedding/slots/user"] = arrays["embedding/slots/user"][:, :1].copy()
    if not rows:
        for name in [one for one in arrays if one.startswith(("embedding/", "linear/"))]:
            arrays[name] = arrays[name][:0].copy()
    return Checkpoint("", found.epochs_done, found.document, arrays)


@pytest.mark.slow
@given(st.lists(plans(), min_size=1, max_size=3), st.integers(1, 4), st.sampled_from([1, 64, 300, 1 << 20]))
def test_any_chain_of_partitions_keeps_every_bit(
    tmp_path_factory: pytest.TempPathFactory, chain: list[PartitionPlan], hosts: int, window_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("chain")
    publish_all(folder / "run", checkpoint(2), hosts, 5)
    expected, before = read(folder / "run"), folder / "run"
    for number, plan in enumerate(chain):
        to = folder / str(number)
        reshard(before, to, plan, window_bytes)
        verify_commit(LocalRun(to / "checkpoints"), NAME)
        assert_same(read(to), expected)
        before = to
    for rank in range(3):
        assert_same(read(before, Share(rank, 3)), read(folder / "run", Share(rank, 3)))
    shutil.rmtree(folder)


@pytest.mark.medium
@given(st.integers(1, 5), st.booleans(), st.booleans())
def test_a_single_process_and_slots_of_rows_are_kept(
    tmp_path_factory: pytest.TempPathFactory, cores: int, is_job: bool, has_rows: bool
) -> None:
    folder = tmp_path_factory.mktemp("alone")
    found = row_wise(checkpoint(2), rows=has_rows)
    if is_job:
        publish_all(folder / "run", found, 2, 5)
    else:
        write_alone(folder / "run", found)
    reshard(folder / "run", folder / "to", PartitionPlan(cores, ()))
    assert_same(read(folder / "to"), read(folder / "run"))
    shutil.rmtree(folder)


@pytest.mark.medium
@given(plans(), plans(), st.integers(0, 3))
def test_a_host_by_a_plan_reads_its_shards_from_any_storage(
    tmp_path_factory: pytest.TempPathFactory, plan: PartitionPlan, other: PartitionPlan, hosts: int
) -> None:
    """Of one process, hosts, another plan and its own plan, whose files alone it opens."""
    plan = plan if plan.tables else cyclic_plan(TABLES, plan.cores)
    folder = tmp_path_factory.mktemp("shares")
    if hosts:
        publish_all(folder / "run", checkpoint(2), hosts, 5)
    else:
        write_alone(folder / "run", checkpoint(2))
    for name, one in (("own", plan), ("other", other)):
        reshard(folder / "run", folder / name, one)
    for core in range(plan.cores):
        share = Share(core, plan.cores, plan)
        expected = read(folder / "run", share)
        assert_same(read(folder / "other", share), expected)
        assert_same(read(folder / "own", share), expected)
        stored = open_commit(LocalRun(folder / "own" / "checkpoints"), NAME).parts[core]
        for array, file in stored.arrays.items():
            if table_of(array) is not None:
                assert (
                    file.array(LocalRun(folder / "own" / "checkpoints")).tobytes() == expected.arrays[array].tobytes()
                )
    shutil.rmtree(folder)


def test_rows_beyond_a_plan_are_refused(tmp_path: Path) -> None:
    write_alone(tmp_path, checkpoint(2))
    plan = PartitionPlan(
        1, tuple(TablePlan(name, 1, columns, (Slice(0, columns, (0,)),)) for name, _, columns in TABLES)
    )
    with pytest.raises(TornCheckpoint, match="a saved table must have the rows of its plan"):
        read(tmp_path, Share(0, 1, plan))


def _damage(part: Path, number: int) -> None:
    """Flip one bit of the last byte of an array."""
    place = part / f"array-{number:04d}.npy"
    data = bytearray(place.read_bytes())
    data[-1] ^= 1
    place.write_bytes(data)


@pytest.mark.parametrize("number", range(9))
def test_a_changed_bit_in_any_table_is_refused(tmp_path: Path, number: int) -> None:
    publish_all(tmp_path / "run", checkpoint(2), 2, 5)
    files = LocalRun(tmp_path / "run" / "checkpoints")
    (part,) = (one for one in open_commit(files, NAME).names if one.rank == 1)
    _damage(files.root / part.folder, number)
    with pytest.raises(
        TornCheckpoint, match=r"must (have the bytes|ascend|be in the part|hold an npy header)"
    ) as refused:
        reshard(tmp_path / "run", tmp_path / "to", PartitionPlan(3, ()))
    assert f"array-{number:04d}" in str(refused.value.where) or "table" in str(refused.value.where)


def _sliced() -> PartitionPlan:
    user = TablePlan("user", 120, 4, (Slice(0, 2, (0, 1)), Slice(2, 2, (1, 2), (50, 120))))
    words = TablePlan("words", 120, 2, (Slice(0, 2, (2,)),))
    return PartitionPlan(3, (user, words))


def _renamed(run: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the members of a commit's manifest, which is signed again."""
    path = run / "checkpoints" / NAME / "manifest.json"
    members: dict[str, Any] = json.loads(path.read_bytes())
    del members["sha256"]
    change(members)
    path.write_bytes(signed_text(members))


def test_a_partition_that_is_not_that_of_the_parts_is_refused(tmp_path: Path) -> None:
    publish_all(tmp_path / "run", checkpoint(2), 2, 5)

    def refused(rule: str, change: Callable[[dict[str, Any]], None]) -> None:
        shutil.rmtree(tmp_path / "to", ignore_errors=True)
        reshard(tmp_path / "run", tmp_path / "to", _sliced())
        _renamed(tmp_path / "to", change)
        with pytest.raises(TornCheckpoint, match=rule):
            verify_commit(LocalRun(tmp_path / "to" / "checkpoints"), NAME)
        with pytest.raises(TornCheckpoint, match=rule):
            reshard(tmp_path / "to", tmp_path / "again", PartitionPlan(2, ()))
        shutil.rmtree(tmp_path / "again", ignore_errors=True)

    def user(members: dict[str, Any]) -> Any:
        return members["partition"]["tables"][0]["slices"]

    refused("rows of its own", lambda found: user(found)[1].update(row_ends=[60, 120]))
    refused("arrays of its shards", lambda found: user(found)[0].update(cores=[[0, 1]]))
    refused("arrays of its shards", lambda found: found["partition"].update(tables=[]))
    refused("a part for each core", lambda found: found["partition"].update(cores=4))
    refused("must follow each other", lambda found: user(found)[1].update(first_column=3))


def test_a_row_wise_optimizer_takes_no_slices_of_columns(tmp_path: Path) -> None:
    publish_all(tmp_path / "run", row_wise(checkpoint(2)), 2, 5)
    with pytest.raises(ConfigError, match="row-wise optimizer"):
        reshard(tmp_path / "run", tmp_path / "to", _sliced())
    assert not (tmp_path / "to").exists()


def test_a_host_reads_the_files_of_its_own_rows_alone(tmp_path: Path) -> None:
    publish_all(tmp_path / "run", checkpoint(2), 2, 5)
    reshard(tmp_path / "run", tmp_path / "to", PartitionPlan(3, ()))
    expected = read(tmp_path / "to", Share(1, 3))
    _damage(tmp_path / "to" / "checkpoints" / "parts" / "attempt-000005" / "host-2", 1)
    assert_same(read(tmp_path / "to", Share(1, 3)), expected)
    with pytest.raises(TornCheckpoint):
        read(tmp_path / "to", Share(2, 3))


@pytest.mark.slow
def test_a_table_with_more_shards_than_are_open_at_once(tmp_path: Path) -> None:
    publish_all(tmp_path / "run", checkpoint(2), 2, 5)
    reshard(tmp_path / "run", tmp_path / "to", PartitionPlan(150, ()))
    reshard(tmp_path / "to", tmp_path / "back", PartitionPlan(2, ()))
    assert_same(read(tmp_path / "back"), read(tmp_path / "run"))
