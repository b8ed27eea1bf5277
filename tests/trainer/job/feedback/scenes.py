"""Tables of a few features, and samples of them in which features have so many ids an event."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trainer.job.feedback.epoch_prices import EpochPricing
from trainer.planning.feature_statistics import FeatureStatistics
from trainer.planning.plan import PartitionPlan, Slice, TablePlan
from trainer.planning.topologies import topology_of
from trainer.tables.batches import IdBatch
from trainer.tables.optimizers import Adagrad
from trainer.tables.spec import FeatureSpec, TableSpec
from trainer.tables.statistics.batch_sampler import BatchSampler

EVENTS, ROWS = 512, 50_000
FEATURES = tuple(FeatureSpec(f"f{k}", TableSpec(f"f{k}", ROWS, 64, Adagrad(0.1))) for k in range(6))
PRICING = EpochPricing(FEATURES, topology_of("cpu:2"), EVENTS)


def sampled(ids: Mapping[str, int], seed: int) -> dict[str, FeatureStatistics]:
    """The statistics of one random batch; ``ids``: of an event, by feature."""
    source = np.random.default_rng(seed)
    sampler = BatchSampler(FEATURES, share=1.0, seed=0)
    lengths = [np.full(EVENTS, ids[one.name], np.int64) for one in FEATURES]
    offsets = np.zeros((len(FEATURES), EVENTS + 1), np.int64)
    at = 0
    for k, own in enumerate(lengths):
        offsets[k] = at + np.concatenate([[0], np.cumsum(own)])
        at = int(offsets[k, -1])
    sampler.add(0, IdBatch(source.integers(0, ROWS, at).astype(np.int32), offsets), EVENTS)
    return dict(sampler.take())


def long_lists(*names: str) -> dict[str, int]:
    """Twenty ids an event for these features, one for all others."""
    return {one.name: 20 if one.name in names else 1 for one in FEATURES}


def by_tables(*first: str) -> PartitionPlan:
    """Whole tables: these on the first host, all others on the second."""
    return PartitionPlan(2, tuple(
        TablePlan(one.table.name, one.table.vocabulary_size, one.table.dim, (Slice(0, one.table.dim, (0 if one.name in first else 1,)),))
        for one in FEATURES
    ))  # fmt: skip
