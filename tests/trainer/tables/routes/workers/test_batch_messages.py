"""Bodies of frames of embedding workers: round trips, and one error for every other body, within the memory that is taken for it."""

from __future__ import annotations

import struct
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.mutations import mutated
from tests.trainer.tables.routes.servers.random_batches import FEATURES, random_batch
from trainer.errors import BadBatch
from trainer.tables import IdBatch
from trainer.tables.routes.servers.frames import Header, Kind
from trainer.tables.routes.workers import batch_messages as messages
from trainer.tables.wire.encoded_values import FP14, FP16
from transforms.errors import DataError


@given(st.integers(0, 1000), st.booleans(), st.sampled_from([0, 1, 5]), st.integers(0, 20), st.booleans())
def test_ids_are_read_as_they_were_written(seed, encoded, longest, events, short):
    batch = random_batch(FEATURES, seed, events=events, longest=longest)
    ids = batch.ids.astype(np.int32) if short else batch.ids
    own = IdBatch(ids, batch.offsets, batch.weights)
    body = messages.write_ids(own, encoded=encoded)
    for content in (body, bytearray(body), memoryview(body)):
        found = messages.read_ids(content, len(FEATURES), messages.ENCODED_IDS if encoded else 0)
        assert found.ids.dtype == own.ids.dtype
        assert found.ids.tolist() == own.ids.tolist()
        assert found.offsets.tolist() == own.offsets.tolist()
        assert (found.weights is None) == (own.weights is None)
        assert own.weights is None or found.weights.tobytes() == own.weights.tobytes()


@given(st.integers(0, 300), st.integers(0, 4), st.sampled_from([0, FP16, FP14]))
def test_gradients_are_read_as_they_were_written(events, tables, flag):
    draw = np.random.default_rng(events)
    values, rates = draw.normal(size=events * 3).astype(np.float32), draw.random(tables, np.float32)
    body = b"".join(messages.write_gradients(7, rates, messages.encode_values(values, flag)))
    assert messages.batch_of(body) == 7
    found_rates, found = messages.read_gradients(body, tables, (events, 3), flag)
    assert found_rates.tolist() == rates.tolist()
    assert found.shape == (events, 3)
    np.testing.assert_allclose(found.reshape(-1), values, rtol=0 if not flag else 0.01, atol=0 if not flag else 0.01)


HEADER = struct.Struct("<BBxxIIIQ")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        bytes(23),
        HEADER.pack(4, 0, 0, 0, 0, 0),
        HEADER.pack(4, 0, 1 << 31, 0, 0, 0),
        HEADER.pack(2, 0, 2, 0, 0, 0),
        HEADER.pack(4, 2, 2, 0, 0, 0),
        HEADER.pack(4, 0, 2, 0, 1, 0),
        HEADER.pack(4, 0, 2, (1 << 32) - 1, 0, (1 << 64) - 1),
        HEADER.pack(4, 0, 2, 1, 0, 1) + struct.pack("<iII", 5, 1, 1),
        HEADER.pack(4, 0, 2, 1, 0, 1) + struct.pack("<iII", 5, 0, 0),
        HEADER.pack(4, 0, 2, 1, 0, 1) + struct.pack("<iII", 5, (1 << 32) - 1, 2),
        HEADER.pack(4, 0, 2, 1, 0, 1) + struct.pack("<iIIB", 5, 1, 0, 0),
    ],
)
def test_other_ids_are_refused(body):
    with pytest.raises(DataError):
        messages.read_ids(body, 2, 0)


@pytest.mark.parametrize("encoded", [False, True])
def test_mutated_ids_are_one_error_or_a_batch(encoded):
    wholes = [messages.write_ids(random_batch(FEATURES, seed), encoded=encoded) for seed in range(6)]
    for seed in range(scaled(3000)):
        body = mutated(wholes[seed % 6], Random(seed))
        try:
            found = messages.read_ids(body, len(FEATURES), messages.ENCODED_IDS if encoded else 0)
        except (DataError, BadBatch):
            continue
        memory = found.ids.nbytes + found.offsets.nbytes + (0 if found.weights is None else found.weights.nbytes)
        flags = messages.ENCODED_IDS if encoded else 0
        assert memory + len(body) <= messages.memory_bytes(Header(Kind.FETCH, len(body), flags=flags))


@pytest.mark.parametrize("flag", [0, FP16, FP14])
def test_mutated_gradients_are_one_error_or_gradients(flag):
    values = np.random.default_rng(0).normal(size=30).astype(np.float32)
    whole = b"".join(messages.write_gradients(7, np.ones(2, np.float32), messages.encode_values(values, flag)))
    for seed in range(scaled(2000)):
        body = mutated(whole, Random(seed))
        try:
            messages.batch_of(body)
            rates, found = messages.read_gradients(body, 2, (10, 3), flag)
        except (DataError, BadBatch):
            continue
        assert found.shape == (10, 3)
        assert (rates >= 0).all()


@pytest.mark.parametrize("header", [
    Header(Kind.FETCH, flags=1), Header(Kind.FETCH, flags=FP16 | FP14), Header(Kind.KEEP, flags=FP16), Header(Kind.UPDATE, flags=2),
    Header(Kind.OPEN, flags=2), Header(Kind.FLUSH, flags=FP16), Header(Kind.FETCH, flags=16),
])  # fmt: skip
def test_other_flags_are_refused(header):
    with pytest.raises(DataError, match="flags"):
        messages.check_flags(header)
