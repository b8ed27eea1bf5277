"""What tables have beside their rows comes together from the parts of hosts, and is divided for any other number of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.checkpoints import job_states
from tests.trainer.checkpoints.job_states import checkpoint, commit_of, find_facts, names_of, publish_all
from tests.trainer.checkpoints.test_reshard import NAME, assert_same, read, reshard
from trainer.checkpoints.local_run import LocalRun
from trainer.checkpoints.parted_arrays import Array
from trainer.checkpoints.parts import write_part
from trainer.checkpoints.publish import publish
from trainer.checkpoints.read import Checkpoint, verify_commit
from trainer.checkpoints.stored_commit import Share
from trainer.checkpoints.table_sections import (
    OWNER_SECTIONS,
    ROW_SECTIONS,
    is_divided,
    section_name,
    section_of,
    with_lines,
)
from trainer.checkpoints.taken_arrays import TakenArrays
from trainer.errors import ConfigError, TornCheckpoint
from trainer.planning.plan import PartitionPlan, Slice, TablePlan, cyclic_plan
from trainer.tables.stores.hashed.saved_history import SECTIONS

TABLES = (("embedding", "user"), ("embedding", "words"), ("linear", "user"))
AGES, STEPS, CANDIDATES = SECTIONS
#: Candidates of each owner.
EACH = 3


def sections_of(found: Checkpoint, owners: int) -> dict[str, Array]:
    """The sections of all tables over some owners."""
    arrays = {}
    for kind, table in TABLES:
        rows = found.arrays[f"{kind}/rows/{table}"]
        arrays[section_name(kind, AGES, table)] = rows // 2 + 1
        arrays[section_name(kind, STEPS, table)] = 1000 + np.arange(owners)
        arrays[section_name(kind, CANDIDATES, table)] = np.arange(owners * EACH, dtype=np.uint64)
    return arrays


def own_sections(found: Checkpoint, sections: dict[str, Array], rank: int, hosts: int) -> dict[str, Array]:
    """Those of the host of a rank."""
    own = {}
    for name, array in sections.items():
        kind, section, table = section_of(name)
        if section == AGES:
            own[name] = array[found.arrays[f"{kind}/rows/{table}"] % hosts == rank]
        else:
            each = len(array) // hosts
            own[name] = array[rank * each : (rank + 1) * each]
    return own


def write(run: Path, found: Checkpoint, hosts: int, change=lambda rank, own: own) -> dict[str, Array]:
    """A commit of hosts each of which has its sections; returns all sections."""
    sections, parts = sections_of(found, hosts), {}
    for rank, name in enumerate(names_of(hosts)):
        part, taken = job_states.cut(found, rank, hosts, 5)
        own = change(rank, own_sections(found, sections, rank, hosts))
        parts[name] = write_part(run, part, [*taken, TakenArrays(part.moment, own)])
    publish(run, commit_of(found, 5), names_of(hosts), parts, find_facts, release=job_states.RELEASE)
    return sections


def divided(found: Checkpoint) -> dict[str, Array]:
    return {name: array for name, array in found.arrays.items() if is_divided(name)}


def assert_equal(found: dict[str, Array], expected: dict[str, Array]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert (found[name].dtype, found[name].tolist()) == (array.dtype, array.tolist()), name


def test_the_sections_are_those_of_hashed_tables() -> None:
    assert (*ROW_SECTIONS, *OWNER_SECTIONS) == SECTIONS
    assert section_of("history/embedding/ages/a/b") == ("embedding", "ages", "a/b")
    assert section_of("dense/weights/000") is None
    assert not is_divided("history/embedding/pruning/user")


@pytest.mark.medium
@settings(max_examples=scaled(12))
@given(st.integers(1, 4), st.lists(st.integers(1, 5), max_size=2), st.sampled_from([1, 64, 1 << 20]))
def test_any_chain_of_hosts_keeps_every_number(
    tmp_path_factory: pytest.TempPathFactory, hosts: int, chain: list[int], window_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("chain")
    found, run = checkpoint(2), folder / "run"
    sections = write(run, found, hosts)
    expected = read(run)
    assert_equal(divided(expected), sections)
    for number, cores in enumerate(chain):
        reshard(run, folder / str(number), PartitionPlan(cores, ()), window_bytes)
        run = folder / str(number)
        verify_commit(LocalRun(run / "checkpoints"), NAME)
        assert_same(read(run), expected)
    for shares in (1, 2, 3, hosts):
        for rank in range(shares):
            own = own_sections(found, sections, rank, shares)
            if shares != hosts:
                own |= {name: array for name, array in sections.items() if section_of(name)[1] == STEPS}
                own |= {name: array[:0] for name, array in sections.items() if section_of(name)[1] == CANDIDATES}
            assert_equal(divided(read(run, Share(rank, shares))), own)
    shutil.rmtree(folder)


@pytest.mark.medium
@settings(max_examples=scaled(8))
@given(st.integers(1, 4), st.integers(1, 3))
def test_sections_of_all_rows_in_the_first_part_are_read_as_well(
    tmp_path_factory: pytest.TempPathFactory, hosts: int, owners: int
) -> None:
    """As an earlier release has resharded them."""
    folder = tmp_path_factory.mktemp("whole")
    found = checkpoint(2)
    sections = sections_of(found, owners)
    publish_all(folder / "run", Checkpoint("", 2, found.document, {**found.arrays, **sections}), hosts, 5)
    verify_commit(LocalRun(folder / "run" / "checkpoints"), NAME)
    assert_equal(divided(read(folder / "run")), sections)
    reshard(folder / "run", folder / "to", PartitionPlan(3, ()))
    assert_same(read(folder / "to"), read(folder / "run"))
    for rank in range(owners):
        found_own = divided(read(folder / "to", Share(rank, owners)))
        assert_equal(found_own, own_sections(found, sections, rank, owners))
    shutil.rmtree(folder)


@pytest.mark.parametrize("change", [
    lambda own: {name: array[:-1] if section_of(name)[1] == AGES else array for name, array in own.items()},
    lambda own: {name: array.astype(np.int32) if section_of(name)[1] == AGES else array for name, array in own.items()},
    lambda own: {name: array for name, array in own.items() if section_of(name)[1] != AGES},
])  # fmt: skip
def test_parts_with_other_sections_are_torn(tmp_path: Path, change) -> None:
    write(tmp_path, checkpoint(2), 3, lambda rank, own: change(own) if rank == 1 else own)
    files = LocalRun(tmp_path / "checkpoints")
    for work in (
        lambda: read(tmp_path),
        lambda: read(tmp_path, Share(0, 2)),
        lambda: verify_commit(files, NAME),
        lambda: reshard(tmp_path, tmp_path / "to", PartitionPlan(2, ())),
    ):
        with pytest.raises(TornCheckpoint):
            work()
        shutil.rmtree(tmp_path / "to", ignore_errors=True)


@pytest.mark.parametrize("window_bytes", [1, 1 << 20])
def test_hosts_of_towers_have_the_sections_of_their_tables(tmp_path: Path, window_bytes: int) -> None:
    """Those of the linear part are on all hosts. A table on as many hosts as before keeps what each has counted."""
    found = checkpoint(2)
    sections = write(tmp_path / "run", found, 2)
    every, plan = read(tmp_path / "run"), plan_of_towers()
    reshard(tmp_path / "run", tmp_path / "towers", plan, window_bytes, is_of_towers=True)
    verify_commit(LocalRun(tmp_path / "towers" / "checkpoints"), NAME)
    assert_same(read(tmp_path / "towers"), every)
    user, words, linear = ({name for name in sections if section_of(name)[::2] == one} for one in TABLES)
    for rank in range(3):
        own = divided(read(tmp_path / "towers", Share(rank, 3, plan)))
        assert own.keys() == linear | (words if rank == 0 else user)
        if rank:
            of_user = own_sections(found, {name: sections[name] for name in user}, rank - 1, 2)
            assert_equal({name: own[name] for name in user}, of_user)
            continue
        of_words = {name: sections[name] for name in words}
        of_words[section_name("embedding", CANDIDATES, "words")] = np.zeros(0, np.uint64)  # of two hosts
        assert_equal({name: own[name] for name in words}, of_words)
    reshard(tmp_path / "towers", tmp_path / "back", PartitionPlan(2, ()), window_bytes)
    assert_same(read(tmp_path / "back"), every)
    for rank in range(2):
        assert_equal(divided(read(tmp_path / "back", Share(rank, 2))), own_sections(found, sections, rank, 2))


def plan_of_towers() -> PartitionPlan:
    """A table on the first of three hosts, and one on the others."""
    on = {"user": (1, 2), "words": (0,)}
    tables = [(name, 120, 4 if name == "user" else 2) for name in on]
    return PartitionPlan(3, tuple(TablePlan(name, rows, columns, (Slice(0, columns, on[name]),)) for name, rows, columns in tables))  # fmt: skip


def test_a_plan_of_tables_with_rows_by_id_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "run", checkpoint(2), 2)
    with pytest.raises(ConfigError, match="hashed tables must be placed without a plan"):
        reshard(tmp_path / "run", tmp_path / "to", cyclic_plan([("user", 120, 4), ("words", 120, 2)], 2))


@settings(max_examples=scaled(100))
@given(st.integers(0, 6), st.sets(st.integers(0, 5)), st.integers(1, 4))
def test_changed_lines_are_put_into_those_of_the_base(lines, changed, width):
    before = np.arange(lines * width, dtype=np.uint64)
    own = np.array(sorted(one for one in changed if one < lines), np.int64)
    found = with_lines(before, own, np.full(len(own) * width, 99, np.uint64), "here")
    expected = before.reshape(lines, width).copy()
    expected[own] = 99
    assert np.array_equal(found, expected.reshape(-1))
    assert np.array_equal(before, np.arange(lines * width)), "the base stays"


@pytest.mark.parametrize(
    ("lines", "changed"),
    [
        ([3], [1, 1]),
        ([-1], [1, 1]),
        ([1, 0], [1, 1, 1, 1]),
        ([0, 0], [1, 1, 1, 1]),
        ([0], []),
        ([], [1]),
        ([0, 1], [1, 1, 1]),
    ],
    ids=str,
)
def test_other_lines_than_those_of_the_base_are_refused(lines, changed):
    with pytest.raises(TornCheckpoint, match="changed lines of candidates must be lines of the base"):
        with_lines(np.zeros(6, np.uint64), np.array(lines, np.int64), np.array(changed, np.uint64), "here")
