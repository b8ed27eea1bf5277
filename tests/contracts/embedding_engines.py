"""The engines that keep the contract of :class:`trainer.tables.engine.EmbeddingEngine`. A further engine is one more entry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.support.embedding_workers import engine_on_worker
from tests.support.emulated_slice import EmulatedSlice
from tests.support.parameter_servers import engine_on_servers
from tests.trainer.tables.routes.partitioned.plans import mixed_plan
from trainer.tables import CpuEngine, FeatureSpec
from trainer.tables.engine import EmbeddingEngine
from trainer.tables.routes.exchange import OneHost
from trainer.tables.routes.partitioned.engine import PartitionedEngine
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables
from trainer.tables.sparse_core import SparseCoreSettings
from trainer.tables.spec import tables_of
from trainer.tables.stores.hashed.limits import TableLimits
from trainer.tables.tpu.stepped_tables import SteppedTables

SEED = 3
#: The most events of a batch.
EVENTS = 16
#: The most ids of a bag.
MOST_IDS = 5


@dataclass(frozen=True)
class EngineKind:
    """A kind of engine.

    Attributes:
        name: in the names of tests.
        make: an engine of these features, in its initial state.
    """

    name: str
    make: Callable[[Sequence[FeatureSpec]], EmbeddingEngine]


def _on_slice(
    replicas: int, sparse_cores: int, *, stacked: bool = True, replicated: Sequence[str] = ()
) -> Callable[[Sequence[FeatureSpec]], EmbeddingEngine]:
    def make(features: Sequence[FeatureSpec]) -> EmbeddingEngine:
        settings = SparseCoreSettings(
            disable_table_stacking=not stacked, replicated=dict.fromkeys(replicated, MOST_IDS)
        )
        slice_ = EmulatedSlice(replicas, sparse_cores=sparse_cores, settings=settings)
        events = EVENTS // replicas
        engine = slice_.make_engine(features, seed=SEED, events_per_replica=events, pipelined=False)
        return SteppedTables(engine, slice_)

    return make


def _hashed(features: Sequence[FeatureSpec], every: int) -> dict[str, TableLimits]:
    """A place for every id of every so-many-th table."""
    return {one.name: TableLimits(one.vocabulary_size) for one in tables_of(features)[::every]}


KINDS = (
    EngineKind("cpu", lambda features: CpuEngine(features, seed=SEED)),
    EngineKind("cpu, 3 threads", lambda features: CpuEngine(features, seed=SEED, threads=3)),
    EngineKind("1 core", lambda features: PartitionedEngine(features, seed=SEED, cores=1)),
    EngineKind("3 cores", lambda features: PartitionedEngine(features, seed=SEED, cores=3)),
    EngineKind(
        "planned", lambda features: PartitionedEngine(features, seed=SEED, cores=3, plan=mixed_plan(features, 3))
    ),
    EngineKind("1 server", lambda features: engine_on_servers(features, seed=SEED, servers=1)),
    EngineKind("3 servers", lambda features: engine_on_servers(features, seed=SEED, servers=3, threads=2)),
    EngineKind(
        "3 servers, planned",
        lambda features: engine_on_servers(features, seed=SEED, servers=3, plan=mixed_plan(features, 3)),
    ),
    EngineKind("1 host", lambda features: ShardedTables(features, seed=SEED, exchange=OneHost())),
    EngineKind(
        "hashed", lambda features: ShardedTables(features, seed=SEED, exchange=OneHost(), hashed=_hashed(features, 1))
    ),
    EngineKind(
        "hashed tables beside others",
        lambda features: ShardedTables(features, seed=SEED, exchange=OneHost(), hashed=_hashed(features, 2)),
    ),
    EngineKind(
        "1 server, all tables hashed",
        lambda features: engine_on_servers(features, seed=SEED, servers=1, hashed=_hashed(features, 1)),
    ),
    EngineKind(
        "3 servers, hashed tables beside others",
        lambda features: engine_on_servers(features, seed=SEED, servers=3, hashed=_hashed(features, 2)),
    ),
    EngineKind("1 worker, 1 server", lambda features: engine_on_worker(features, seed=SEED, servers=1)),
    EngineKind(
        "1 worker, 3 servers, planned",
        lambda features: engine_on_worker(features, seed=SEED, servers=3, plan=mixed_plan(features, 3)),
    ),
    EngineKind(
        "1 worker, 3 servers, hashed tables beside others",
        lambda features: engine_on_worker(features, seed=SEED, servers=3, hashed=_hashed(features, 2)),
    ),
    EngineKind("SparseCore, 2 chips", _on_slice(2, 4)),
    EngineKind("SparseCore, 4 chips, not stacked", _on_slice(4, 2, stacked=False)),
    EngineKind(
        "SparseCore, 2 chips, replicated tables beside others",
        _on_slice(2, 4, replicated=("one", "sgd", "momentum", "adam", "ftrl")),
    ),
    EngineKind("TPUEmbedding, 2 cores", _on_slice(2, 0)),
)
