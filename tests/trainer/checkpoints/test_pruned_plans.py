"""Pruned tables of hosts by a plan: a commit has what each table has beside its rows once, on the cores of the rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.checkpoints import job_states
from tests.trainer.checkpoints.job_states import checkpoint, commit_of, cut, find_facts, names_of
from tests.trainer.checkpoints.test_reshard import NAME, assert_same, read, reshard
from tests.trainer.tables.stores.pruned.test_pruned_engine import FEATURES, PAPER, SEED, TABLES, pruned
from tests.trainer.tables.stores.pruned.test_pruned_shards import exact_gradients, popular, train
from tests.trainer.thread_exchange import on_hosts
from trainer.checkpoints.local_run import LocalRun
from trainer.checkpoints.parts import write_part
from trainer.checkpoints.publish import publish
from trainer.checkpoints.read import verify_commit
from trainer.checkpoints.stored_commit import Share
from trainer.checkpoints.table_sections import section_of
from trainer.checkpoints.taken_arrays import TakenArrays
from trainer.errors import ConfigError, TornCheckpoint
from trainer.job.host.shard_arrays import parted_shards, shard_arrays, shard_states
from trainer.options.pruning import PruningOptions
from trainer.planning.plan import PartitionPlan, Slice, TablePlan
from trainer.planning.plan_document import plan_fingerprint
from trainer.run.weights.saved_tables import saved_states
from trainer.tables.routes.partitioned.engine import PartitionedEngine
from trainer.tables.routes.partitioned.pruned_groups import groups_on
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.spec import TableSpec
from trainer.tables.stores.pruned.rows import groups_of

KINDS = ("embedding-importance", "embedding-left")


def options_of(reset: str) -> PruningOptions:
    return PruningOptions.read({"budget": 0.5, **PAPER, "round_steps": 3, "reset": reset})


@st.composite
def plans(draw: st.DrawFn, cores: int) -> PartitionPlan:
    """Whole tables, blocks of rows and rows by remainders, on some cores."""
    return PartitionPlan(cores, tuple(_placed(draw, cores, one) for one in TABLES))


def _placed(draw: st.DrawFn, cores: int, table: TableSpec) -> TablePlan:
    rows, way = table.vocabulary_size, draw(st.sampled_from(["whole", "blocks", "remainders"]))
    own = tuple(draw(st.permutations(range(cores))))[: 1 if way == "whole" else draw(st.integers(1, cores))]
    ends = sorted(draw(st.lists(st.integers(0, rows), min_size=len(own) - 1, max_size=len(own) - 1)))
    blocks = (*ends, rows) if way == "blocks" else ()
    return TablePlan(table.name, rows, table.dim, (Slice(0, table.dim, own, blocks),))


def tables_by(plan: PartitionPlan, exchange, reset: str) -> ShardedTables:
    parts = TableParts(TABLES, plan.cores, plan)
    return ShardedTables(FEATURES, seed=SEED, exchange=exchange, threads=1, parts=parts, pruning=options_of(reset))


def check_places(plan: PartitionPlan) -> None:
    """Leave out plans by which a core would have rows and no place."""
    try:
        for core in range(plan.cores):
            groups_on(TableParts(TABLES, plan.cores, plan), groups_of(TABLES, options_of("zero")), core)
    except ConfigError:
        assume(False)


def write(run: Path, plan: PartitionPlan, reset: str, steps: int = 8) -> list[dict[str, bytes]]:
    """A commit of hosts that have trained by a plan; returns the arrays of each."""
    base = checkpoint(2)
    base = replace(base, arrays={name: one for name, one in base.arrays.items() if not name.startswith(("embedding/", "linear/"))})  # fmt: skip

    def work(exchange):
        tables = tables_by(plan, exchange, reset)
        train(tables, popular(steps, plan.cores), exchange.rank)
        part, taken = cut(base, exchange.rank, plan.cores, 5)
        part = replace(part, partition=plan_fingerprint(plan))
        saved = TakenArrays(part.moment, {}, parted_shards("embedding", tables, 1 << 20))
        written = write_part(run, part, [*taken, saved])
        tables.end_snapshot()
        return written, own_arrays(tables)

    found = on_hosts(plan.cores, work)
    parts = dict(zip(names_of(plan.cores), (written for written, _ in found), strict=True))
    publish(run, commit_of(base, 5), names_of(plan.cores), parts, find_facts, release=job_states.RELEASE, partition=plan)  # fmt: skip
    return [arrays for _, arrays in found]


def own_arrays(tables: ShardedTables) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in shard_arrays("embedding", tables).items()}


def of_tables(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: one for name, one in arrays.items() if name.startswith(("embedding", "history/"))}


@pytest.mark.medium
@settings(max_examples=scaled(25))
@given(st.data(), st.integers(1, 3), st.sampled_from(["zero", "restored"]))
def test_a_commit_restores_every_host_and_one_process(tmp_path_factory, data, cores, reset):
    plan, run = data.draw(plans(cores)), tmp_path_factory.mktemp("run")
    check_places(plan)
    expected = write(run, plan, reset)
    verify_commit(LocalRun(run / "checkpoints"), NAME)

    def work(exchange):
        tables = tables_by(plan, exchange, reset)
        found = read(run, Share(exchange.rank, cores, plan))
        tables.load_parts(shard_states(found.arrays, "embedding", tables))
        return own_arrays(tables)

    for own, before in zip(on_hosts(cores, work), expected, strict=True):
        assert own == before
    whole = saved_states(read(run).arrays, "embedding")
    engine = pruned(0.5, round_steps=3, reset=reset)
    engine.load_state(whole)
    assert engine.rows.step == 8
    for name, one in engine.state().items():
        assert one.rows.tobytes() == whole[name].rows.tobytes()
        for section, rows in one.sections.by_rows.items():
            assert rows.weights.tobytes() == whole[name].sections.by_rows[section].weights.tobytes(), section


@pytest.mark.slow
@settings(max_examples=scaled(15))
@given(st.data(), st.integers(1, 3), st.integers(1, 3), st.sampled_from([1, 1 << 20]))
def test_resharding_keeps_every_number_and_puts_it_on_the_cores_of_the_rows(
    tmp_path_factory, data, cores, others, window_bytes
):
    plan, folder = data.draw(plans(cores)), tmp_path_factory.mktemp("chain")
    check_places(plan)
    write(folder / "run", plan, "restored")
    expected = read(folder / "run")
    by_rows, other = PartitionPlan(others, ()), data.draw(plans(others))
    reshard(folder / "run", folder / "rows", by_rows, window_bytes)
    reshard(folder / "rows", folder / "other", other, window_bytes)
    reshard(folder / "other", folder / "back", plan, window_bytes)
    for name in ("rows", "other", "back"):
        verify_commit(LocalRun(folder / name / "checkpoints"), NAME)
        assert_same(read(folder / name), expected)
    for core in range(cores):
        share = Share(core, cores, plan)
        own, before = (of_tables(dict(read(folder / name, share).arrays)) for name in ("back", "run"))
        assert {name: one.tobytes() for name, one in own.items()} == {name: one.tobytes() for name, one in before.items()}  # fmt: skip


def test_a_table_that_rank_0_has_not_is_saved_whole(tmp_path: Path) -> None:
    """Its numbers are in the part of its first host, and those of one table in one part."""
    away = {TABLES[0].name: Slice(0, TABLES[0].dim, (1,)), TABLES[1].name: Slice(0, TABLES[1].dim, (1, 0), (20, 42))}
    plan = PartitionPlan(2, tuple(TablePlan(one.name, one.vocabulary_size, one.dim, (away.get(one.name, Slice(0, one.dim, (0, 1))),))
                                  for one in TABLES))  # fmt: skip
    write(tmp_path, plan, "zero")
    commit = verify_commit(LocalRun(tmp_path / "checkpoints"), NAME)
    holders = {name: [rank for rank, part in enumerate(commit.parts) if name in part.arrays] for part in commit.parts for name in part.arrays}  # fmt: skip
    of_first = {section_of(name)[2]: ranks for name, ranks in holders.items() if section_of(name) is not None}
    assert of_first == {one.name: [1 if one.name in away else 0] for one in TABLES}
    for kind in ("embedding", "embedding-importance"):
        assert holders[f"{kind}/rows/{TABLES[0].name}"] == [1]
        assert holders[f"{kind}/rows/{TABLES[1].name}"] == [0, 1]
    states = saved_states(read(tmp_path).arrays, "embedding")
    assert {name: one.sections.arrays["pruning"][1] for name, one in states.items()} == {one.name: 8 for one in TABLES}


def test_simulated_cores_keep_the_importance_of_a_table_that_the_first_has_not() -> None:
    plan = PartitionPlan(2, tuple(TablePlan(one.name, one.vocabulary_size, one.dim, (Slice(0, one.dim, (t % 2,)),)) for t, one in enumerate(TABLES)))  # fmt: skip
    engine = PartitionedEngine(FEATURES, seed=SEED, cores=2, plan=plan, pruning=options_of("zero"))
    for seed, (batch,) in enumerate(popular(4, 1)):
        engine.lookup(batch)
        engine.apply_gradients(batch, exact_gradients(batch, seed))
    found = engine.state()
    for t, one in enumerate(TABLES):
        own = found[one.name].sections
        assert own.arrays["pruning"].tolist() == [1.0, 4.0, 1.0]
        snapshot = engine.begin_snapshot(most_bytes=1 << 20)
        saved = snapshot.sections(t)
        engine.end_snapshot()
        assert [part.tolist() for part in saved.arrays["pruning"].parts] == [[1.0, 4.0, 1.0]]
        weights = np.concatenate([part.weights for part in saved.by_rows["importance"].parts()])
        assert weights.tobytes() == own.by_rows["importance"].weights.tobytes()
    again = PartitionedEngine(FEATURES, seed=SEED, cores=2, plan=plan, pruning=options_of("zero"))
    again.load_state(found)
    for name, state in again.state().items():
        assert len(state.sections.by_rows["importance"].rows) > 0
        assert state.sections.by_rows["importance"].weights.tobytes() == found[name].sections.by_rows["importance"].weights.tobytes()  # fmt: skip


def test_numbers_in_two_parts_are_torn(tmp_path: Path) -> None:
    base = checkpoint(2)
    name = f"history/embedding/pruning/{TABLES[0].name}"
    parts = {}
    for rank, host in enumerate(names_of(2)):
        part, taken = cut(base, rank, 2, 5)
        parts[host] = write_part(tmp_path, part, [*taken, TakenArrays(part.moment, {name: np.zeros(3)})])
    publish(tmp_path, commit_of(base, 5), names_of(2), parts, find_facts, release=job_states.RELEASE)
    with pytest.raises(TornCheckpoint, match="must be in one part"):
        read(tmp_path)
    with pytest.raises(TornCheckpoint, match="must be in one part"):
        verify_commit(LocalRun(tmp_path / "checkpoints"), NAME)


@pytest.mark.parametrize("is_replicated", [True, False])
def test_slices_and_copies_of_pruned_tables_are_refused(tmp_path: Path, is_replicated: bool) -> None:
    whole = PartitionPlan(2, tuple(TablePlan(one.name, one.vocabulary_size, one.dim, (Slice(0, one.dim, (0, 1)),)) for one in TABLES))  # fmt: skip
    write(tmp_path / "run", whole, "zero")
    first, *rest = whole.tables
    cut_ = (Slice(0, 1, (0,)), Slice(1, first.columns - 1, (1,)))
    bad = replace(first, is_replicated=True) if is_replicated else replace(first, slices=cut_)
    with pytest.raises(ConfigError, match="pruned tables must be placed by rows, blocks of rows or as wholes"):
        reshard(tmp_path / "run", tmp_path / "to", PartitionPlan(2, (bad, *rest)))
