"""The engines that keep the contract of :class:`trainer.embedding.engine.EmbeddingEngine`. A further engine is one more entry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.support.emulated_slice import EmulatedSlice
from tests.support.threaded_hosts import ThreadedHosts
from trainer.embedding import CpuEngine, FeatureSpec
from trainer.embedding.engine import EmbeddingEngine
from trainer.embedding.sparse_core import SparseCoreSettings
from trainer.embedding.tpu.stepped_tables import SteppedTables

SEED = 3
#: The most events of a batch.
EVENTS = 16

_THREADS = ThreadPoolExecutor(3, "host")


@dataclass(frozen=True)
class EngineKind:
    """A kind of engine.

    Attributes:
        name: in the names of tests.
        make: an engine of these features, in its initial state.
        hosts: that divide the events of a batch among them.
    """

    name: str
    make: Callable[[Sequence[FeatureSpec]], EmbeddingEngine]
    hosts: int = 1


def _on_slice(
    replicas: int, sparse_cores: int, *, stacked: bool = True
) -> Callable[[Sequence[FeatureSpec]], EmbeddingEngine]:
    def make(features: Sequence[FeatureSpec]) -> EmbeddingEngine:
        settings = SparseCoreSettings(disable_table_stacking=not stacked)
        slice_ = EmulatedSlice(replicas, sparse_cores=sparse_cores, settings=settings)
        events = EVENTS // replicas
        engine = slice_.make_engine(features, seed=SEED, events_per_replica=events, pipelined=False)
        return SteppedTables(engine, slice_)

    return make


KINDS = (
    EngineKind("cpu", lambda features: CpuEngine(features, seed=SEED)),
    EngineKind("cpu, 3 threads", lambda features: CpuEngine(features, seed=SEED, threads=3)),
    EngineKind("1 host", lambda features: ThreadedHosts(features, seed=SEED, hosts=1, threads=_THREADS)),
    EngineKind("3 hosts", lambda features: ThreadedHosts(features, seed=SEED, hosts=3, threads=_THREADS), hosts=3),
    EngineKind("SparseCore, 2 chips", _on_slice(2, 4)),
    EngineKind("SparseCore, 4 chips, not stacked", _on_slice(4, 2, stacked=False)),
    EngineKind("TPUEmbedding, 2 cores", _on_slice(2, 0)),
)
