"""Rows, outputs and gradients of towers in fewer bits: near those as they are, in half the bytes, and other bytes are one error."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trainer.tables.routes.partitioned.test_rounded_values import OTHER_BYTES
from tests.trainer.tables.routes.towers.grouped_threads import on_workers
from tests.trainer.tables.test_engine import batch_of
from trainer.errors import BadBatch
from trainer.options.pruning import PruningOptions
from trainer.tables import IdBatch
from trainer.tables.optimizers import SGD
from trainer.tables.routes.towers.counted_exchange import TowerExchanges
from trainer.tables.routes.towers.placement import TowerPlacement
from trainer.tables.routes.towers.tower_tables import TowerTables
from trainer.tables.spec import FeatureSpec, TableSpec
from trainer.tables.stores.hashed.limits import TableLimits
from transforms.errors import DataError

ROWS, EVENTS, DIM = 500, 40, 16
FEATURES = tuple(FeatureSpec(name, TableSpec(name, ROWS, DIM, SGD(0.1), "sum")) for name in "abcd")
#: The second tower has two hosts of two workers.
PLACEMENT = TowerPlacement(3, 2, (("a", "b"), ("c", "d")), ((1,), (0, 2)))
KINDS = {
    "plain": {},
    "swapped": {"is_swapped": True},
    "shared requests": {"is_deterministic": False},
    "pruned": {"pruning": PruningOptions.read({"budget": 0.9})},
    "hashed": {"hashed": {"c": TableLimits(400)}},
}


def batch_for(rank: int, step: int, placement: TowerPlacement) -> IdBatch:
    """Bags of 0 to 5 ids; the last worker of a step has no events."""
    random = np.random.default_rng((rank, step))
    events = 0 if rank == placement.workers - 1 else EVENTS
    return batch_of([[random.integers(0, ROWS, random.integers(0, 6)).tolist() for _ in range(events)] for _ in FEATURES])  # fmt: skip


def train(values: str, placement: TowerPlacement = PLACEMENT, **options):
    """The outputs of each worker's steps, and the bytes that all sent between hosts in the last one."""

    def work(rank, exchanges, sent):
        tables = TowerTables(FEATURES, seed=3, placement=placement, rank=rank, exchanges=exchanges, threads=1, values=values, **options)  # fmt: skip
        found, before = [], 0
        for step in range(4):
            batch, before = batch_for(rank, step, placement), sent.between_hosts
            found.append(tables.lookup(batch).copy())
            gradients = np.random.default_rng((step, rank)).normal(size=(batch.rows, tables.width))
            tables.apply_gradients(batch, gradients.astype(np.float32))
        return found, sent.between_hosts - before

    results = on_workers(placement, work)
    return [found for found, _ in results], sum(sent for _, sent in results)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_rounded_values_are_near_those_as_they_are(kind):
    exact, _ = train("float32", **KINDS[kind])
    for values in ("fp16", "fp14"):
        rounded, _ = train(values, **KINDS[kind])
        again, _ = train(values, **KINDS[kind])
        for ours, same, theirs in zip(rounded, again, exact, strict=True):
            for one, other, whole in zip(ours, same, theirs, strict=True):
                assert one.tobytes() == other.tobytes()
                np.testing.assert_allclose(one, whole, rtol=0.02, atol=0.02)
        assert any(one[-1].tobytes() != whole[-1].tobytes() for one, whole in zip(rounded, exact, strict=True))


@pytest.mark.parametrize(("values", "share"), [("fp16", 0.504), ("fp14", 0.441)])
def test_outputs_and_their_gradients_cross_hosts_in_fewer_bytes(values, share):
    placement = TowerPlacement(2, 2, (("a", "b"), ("c", "d")))
    as_they_are, rounded = train("float32", placement)[1], train(values, placement)[1]
    crossing = (
        2 * 3 * EVENTS * 2 * DIM * 4
    )  # outputs and gradients of three workers with events, of the two features of the other tower
    assert (as_they_are - rounded) / crossing == pytest.approx(1 - share, abs=0.01)


class _Spoiled:
    """An exchange whose encoded values arrive as other arrays."""

    def __init__(self, exchange, change) -> None:
        self._exchange, self._change, self.rank, self.hosts = exchange, change, exchange.rank, exchange.hosts

    def all_to_all(self, parts):
        return [[self._change(one) if one.dtype == np.uint8 else one for one in arrays] for arrays in self._exchange.all_to_all(parts)]  # fmt: skip


@pytest.mark.parametrize("spoiled", ["peers", "group"])
@pytest.mark.parametrize("change", OTHER_BYTES.values(), ids=OTHER_BYTES)
def test_other_bytes_are_one_error(spoiled, change):
    placement = TowerPlacement(1, 1, (("a", "b", "c", "d"),))

    def work(rank, exchanges, sent):
        given = {"peers": exchanges.peers, "group": exchanges.group}
        given[spoiled] = _Spoiled(given[spoiled], change)
        tables = TowerTables(FEATURES, seed=3, placement=placement, rank=rank, exchanges=TowerExchanges(**given), threads=1, values="fp16")  # fmt: skip
        with pytest.raises((DataError, BadBatch)):
            tables.lookup(batch_for(0, 0, PLACEMENT))

    on_workers(placement, work)
