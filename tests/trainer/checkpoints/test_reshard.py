"""A commit that is written in another partition holds the same bits; damaged commits and other plans are refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.checkpoints.job_states import checkpoint, publish_all
from trainer.checkpoints.checkpoint import write_checkpoint
from trainer.checkpoints.local_run import LocalRun
from trainer.checkpoints.read import Checkpoint, Share, open_commit, read_commit, verify_commit
from trainer.checkpoints.reshard import reshard_commit
from trainer.planning.plan import PartitionPlan, Slice, TablePlan

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


def reshard(run: Path, to: Path, plan: PartitionPlan, window_bytes: int = 64) -> None:
    files = LocalRun(run / "checkpoints")
    reshard_commit(files, open_commit(files, NAME), plan, to / "checkpoints", window_bytes=window_bytes)


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
