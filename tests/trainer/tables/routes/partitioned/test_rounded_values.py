"""Rows and gradients between cores in fewer bits: near those as they are, in half the bytes, and other bytes are one error."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trainer.tables.routes.partitioned.plans import mixed_plan
from tests.trainer.tables.routes.servers.random_batches import FEATURES, gradients_of, random_batch
from tests.trainer.thread_exchange import on_hosts
from trainer.errors import BadBatch
from trainer.options.pruning import PruningOptions
from trainer.tables import CpuEngine
from trainer.tables.routes.exchange import OneHost
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.spec import tables_of
from trainer.tables.stores.hashed.limits import TableLimits
from transforms.errors import DataError

HOSTS, SEED = 2, 3


class Counted:
    """An exchange that counts the bytes of floats and encoded values which this host sends."""

    def __init__(self, exchange) -> None:
        self._exchange, self.rank, self.hosts, self.value_bytes = exchange, exchange.rank, exchange.hosts, 0

    def all_to_all(self, parts):
        self.value_bytes += sum(
            one.nbytes for arrays in parts for one in arrays if one.dtype in (np.dtype(np.float32), np.dtype(np.uint8))
        )
        return self._exchange.all_to_all(parts)


def train(values, features, **options):
    def work(exchange):
        counted = Counted(exchange)
        tables = ShardedTables(features, seed=SEED, exchange=counted, threads=1, values=values, **options)
        activations = []
        for seed in range(4):
            batch = random_batch(features, 10 * seed + exchange.rank)
            activations.append(tables.lookup(batch).copy())
            tables.apply_gradients(batch, gradients_of(batch, tables.width, seed))
        return activations, counted.value_bytes

    return on_hosts(HOSTS, work)


@pytest.mark.parametrize(("values", "share"), [("fp16", 0.504), ("fp14", 0.441)])
@pytest.mark.parametrize("kind", ["plain", "planned", "pruned", "hashed"])
def test_rounded_values_are_near_those_as_they_are(values, share, kind):
    features = FEATURES[:-1] if kind == "planned" else FEATURES
    options = {
        "plain": {},
        "planned": {"parts": TableParts(tables_of(features), HOSTS, mixed_plan(features, HOSTS))},
        "pruned": {"pruning": PruningOptions.read({"budget": 0.9})},
        "hashed": {"hashed": {tables_of(features)[0].name: TableLimits(64)}},
    }[kind]
    exact, rounded = train("float32", features, **options), train(values, features, **options)
    for (ours, our_bytes), (theirs, their_bytes) in zip(rounded, exact, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one, other, rtol=0.02, atol=0.02)
        assert any(one.tobytes() != other.tobytes() for one, other in zip(ours, theirs, strict=True))
        assert our_bytes < 1.3 * share * their_bytes, "blocks of a few rows are padded"


def test_one_host_has_the_rounding_of_several():
    """Its own rows are rounded too, so that a row is the same wherever it is asked for from."""
    batch = random_batch(FEATURES, 1)
    tables = ShardedTables(FEATURES, seed=SEED, exchange=OneHost(), values="fp14")
    whole = CpuEngine(FEATURES, seed=SEED).lookup(batch)
    found = tables.lookup(batch)
    assert found.tobytes() != whole.tobytes()
    np.testing.assert_allclose(found, whole, rtol=0.01, atol=0.01)


class Spoiled(OneHost):
    """An exchange that hands over other arrays."""

    def __init__(self, change) -> None:
        super().__init__()
        self._change = change

    def all_to_all(self, parts):
        return [[self._change(one) if one.dtype == np.uint8 else one for one in arrays] for arrays in parts]


#: What an encoded message may arrive as, by name.
OTHER_BYTES = {
    "short": lambda one: one[:-8],
    "long": lambda one: np.append(one, np.zeros(8, np.uint8)),
    "of no encoder": lambda one: np.full_like(one, 255),
    "of another type": lambda one: one.view(np.int8),
    "floats": lambda one: one.view(np.float32),
}


@pytest.mark.parametrize("change", OTHER_BYTES.values(), ids=OTHER_BYTES)
def test_other_bytes_are_one_error(change):
    tables = ShardedTables(FEATURES, seed=SEED, exchange=Spoiled(change), values="fp16")
    with pytest.raises((DataError, BadBatch)):
        tables.lookup(random_batch(FEATURES, 1))
