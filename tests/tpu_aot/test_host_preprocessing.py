"""What SparseCores look up, after TensorFlow's real host preprocessing of our batches, is what the cpu engine looks up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.support.processes import PATIENCE_SECS
from tests.tpu_aot.preprocessing_case import EVENTS, SEED, features
from tests.trainer.tables.test_engine import batch_of
from trainer.tables import CpuEngine, IdBatch
from trainer.tables.routes.partitioned.engine import PartitionedEngine
from trainer.tables.sparse_core import SparseCoreSettings
from trainer.tpu_check.environment import TpuEnvironment

pytestmark = pytest.mark.tpu_aot


def random_batch(replicas: int, *, weighted: bool, longest: int = 6) -> IdBatch:
    """Bags of up to so many ids, some empty, some with an id twice."""
    source = np.random.default_rng(0)
    sizes = [feature.table.vocabulary_size for feature in features()]
    bags = [
        [source.integers(0, size, source.integers(0, longest)).tolist() for _ in range(replicas * EVENTS)]
        for size in sizes
    ]
    bags[0][0] = [7, 7, 3]
    batch = batch_of(bags)
    weights = source.normal(size=len(batch.ids)).astype(np.float32) if weighted else None
    return IdBatch(batch.ids, batch.offsets, weights)


@dataclass(frozen=True)
class Case:
    """A batch on so many replicas."""

    replicas: int
    sparse_cores: int
    batch: IdBatch
    max_ids: int = 256
    counts: bool = False


def looked_up(environment: TpuEnvironment, folder: Path, cases: list[Case]) -> list[tuple[dict, np.ndarray]]:
    """For each case the answer of one process for all, and the activations [events, columns], empty after an error."""
    requests = []
    for k, case in enumerate(cases):
        batch, path = case.batch, folder / f"batch{k}.npz"
        weights = {} if batch.weights is None else {"weights": batch.weights}
        np.savez(path, ids=batch.ids, offsets=batch.offsets, **weights)
        requests.append({"replicas": case.replicas, "sparse_cores": case.sparse_cores, "max_ids": case.max_ids,
                         "counts": case.counts, "batch": str(path), "activations": str(folder / f"activations{k}.npy")})  # fmt: skip
    asked = {"cases": requests}
    found = environment.run("lowering", "tests.tpu_aot.host_preprocessing", asked, timeout_secs=PATIENCE_SECS)
    return [
        (answer, np.zeros(0) if answer else np.load(request["activations"]))
        for answer, request in zip(found["answers"], requests, strict=True)
    ]


def test_lookups_are_those_of_the_cpu_engine(tpu_environment: TpuEnvironment, tmp_path: Path) -> None:
    cases = [
        Case(replicas, sparse_cores, random_batch(replicas, weighted=weighted))
        for replicas, sparse_cores in ((1, 4), (4, 4), (4, 2))
        for weighted in (False, True)
    ]
    for case, (answer, found) in zip(cases, looked_up(tpu_environment, tmp_path, cases), strict=True):
        assert answer == {}
        expected = CpuEngine(features(), seed=SEED).lookup(case.batch)
        scale = np.maximum(np.abs(expected), 1.0)  # weights of both signs nearly cancel in some bags
        most = 1e-6 if case.batch.weights is None else 2e-5
        assert np.max(np.abs(found - expected) / scale) < most, case


def test_the_buffers_of_simulated_cores_hold_what_sparse_cores_hold(
    tpu_environment: TpuEnvironment, tmp_path: Path
) -> None:
    cases = [
        Case(replicas, cores, random_batch(replicas, weighted=False), counts=True)
        for replicas, cores in ((1, 4), (4, 2))
    ]
    for case, (answer, _) in zip(cases, looked_up(tpu_environment, tmp_path, cases), strict=True):
        cores = case.replicas * case.sparse_cores
        engine = PartitionedEngine(
            features(), seed=SEED, cores=cores, settings=SparseCoreSettings(disable_table_stacking=True)
        )
        engine.lookup(case.batch)
        assert set(answer["counts"]) == {table.name for table in engine.tables}
        for table, found in answer["counts"].items():
            counts = np.array(found)  # [cores, shards, 2]
            traffic = engine.traffic[table]
            assert counts.shape == (cores, cores, 2)
            assert (traffic.ids, traffic.rows) == tuple(counts.sum(axis=(0, 1)))
            assert (traffic.most_ids, traffic.most_rows) == tuple(counts.max(axis=(0, 1)))


def test_too_many_ids_are_a_clear_error_and_are_not_dropped(tpu_environment: TpuEnvironment, tmp_path: Path) -> None:
    case = Case(1, 4, random_batch(1, weighted=False, longest=60), max_ids=8)
    ((answer, _),) = looked_up(tpu_environment, tmp_path, [case])
    assert "must fit in the buffers of the SparseCores" in answer["clear"]
    assert "max_ids_per_table['one_three_two'] to at least" in answer["clear"]
