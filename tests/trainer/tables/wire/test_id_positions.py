"""Batches on the wire come back bit for bit; hostile bytes are refused before memory is taken for them."""

from __future__ import annotations

import tracemalloc
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.mutations import mutated
from trainer.errors import BadBatch
from trainer.tables.batches import IdBatch
from trainer.tables.wire.id_positions import decode, encode

Array = np.ndarray[Any, np.dtype[Any]]

#: Bytes of the header and of a feature's record.
_HEADER_BYTES, _RECORD_BYTES = 12, 16


def _batch(bags: list[list[list[int]]], dtype: type = np.int64, weights: Array | None = None) -> IdBatch:
    """A batch of ``bags[feature][event]``."""
    ids: Array = np.array([one for feature in bags for bag in feature for one in bag], dtype)
    lengths = np.array([[len(bag) for bag in feature] for feature in bags], np.int64).reshape(len(bags), -1)
    ends = np.cumsum(lengths).reshape(lengths.shape)
    starts = np.concatenate([[0], lengths.sum(axis=1).cumsum()[:-1]])[:, None]
    return IdBatch(ids, np.concatenate([starts, ends], axis=1).astype(np.int64), weights)


def _check_equal(found: IdBatch, batch: IdBatch) -> None:
    assert found.bounds is None
    assert (found.weights is None) == (batch.weights is None)
    for name in ("ids", "offsets", "weights"):
        one, other = getattr(found, name), getattr(batch, name)
        if other is not None:
            assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


@st.composite
def _batches(draw: st.DrawFn) -> IdBatch:
    dtype: Any = draw(st.sampled_from((np.int32, np.int64)))
    limits = np.iinfo(dtype)
    number = draw(st.sampled_from((st.integers(0, 3), st.integers(0, 300), st.integers(1 << 20, (1 << 20) + 3),
                                   st.integers(limits.min, limits.max), st.sampled_from((limits.min, limits.max)))))  # fmt: skip
    features, events = draw(st.integers(1, 4)), draw(st.integers(0, 6))
    if draw(st.booleans()):
        valency = draw(st.integers(0, 8))
        bag = st.lists(number, min_size=valency, max_size=valency)
    else:
        bag = st.lists(number, max_size=8)
    bags = draw(st.lists(st.lists(bag, min_size=events, max_size=events), min_size=features, max_size=features))
    batch = _batch(bags, dtype)
    if draw(st.booleans()):
        words = np.random.default_rng(0).integers(0, 2**32, len(batch.ids), dtype=np.uint32)
        batch = IdBatch(batch.ids, batch.offsets, words.view(np.float32))
    return batch


@pytest.mark.slow
@settings(max_examples=scaled(1000))
@given(_batches())
def test_any_batch_comes_back_bit_for_bit(batch: IdBatch) -> None:
    content = encode(batch)
    _check_equal(decode(content), batch)
    _check_equal(decode(np.frombuffer(content, np.uint8)), batch)
    assert encode(decode(content)) == content


@pytest.mark.parametrize(("distinct", "width"), [(256, 1), (257, 2), (65_536, 2), (65_537, 4)])
def test_the_width_of_positions_follows_the_distinct_ids(distinct: int, width: int) -> None:
    occurrences = 12
    ids = np.tile(np.arange(distinct, dtype=np.int64) + 2**40, occurrences)
    batch = IdBatch(ids, np.array([[0, 5, len(ids)]], np.int64))
    content = encode(batch)
    _check_equal(decode(content), batch)
    assert len(content) - _HEADER_BYTES - _RECORD_BYTES - 2 * 4 <= width * len(ids) + distinct + 10
    assert len(content) >= width * len(ids)


def test_each_feature_has_the_shortest_form() -> None:
    draw = np.random.default_rng(0)
    few, some, all_apart = draw.integers(0, 200, 1000), draw.integers(0, 500, 1000), draw.permutation(10**6)[:1000]
    for ids, size in ((few, 1000), (some, 2000), (all_apart, 4000), (few + 2**40, 1000 + 200)):
        batch = IdBatch(ids.astype(np.int64), np.arange(1001)[None].astype(np.int64))
        assert len(encode(batch)) <= _HEADER_BYTES + _RECORD_BYTES + size + 10


def test_lengths_take_no_bytes_if_they_are_equal() -> None:
    def size(bags: list[list[int]]) -> int:
        return len(encode(_batch([bags])))

    assert size([[1, 2]] * 100) == _HEADER_BYTES + _RECORD_BYTES + 200
    assert size([[1, 2]] * 99 + [[1]]) == _HEADER_BYTES + _RECORD_BYTES + 199 + 100
    assert size([[]] * 100) == _HEADER_BYTES + _RECORD_BYTES + 100
    assert size([[1] * 256, [1]]) == _HEADER_BYTES + _RECORD_BYTES + 257 + 4


@pytest.mark.parametrize("batch", [
    IdBatch(np.zeros(2, np.int16), np.array([[0, 2]])),
    IdBatch(np.zeros(2, np.int64), np.array([[0, 2]], np.int32)),
    IdBatch(np.zeros((2, 1), np.int64), np.array([[0, 2]])),
    IdBatch(np.zeros(2, np.int64), np.array([0, 2])),
    IdBatch(np.zeros(0, np.int64), np.zeros((0, 3), np.int64)),
    IdBatch(np.zeros(2, np.int64), np.array([[0, 1]])),
    IdBatch(np.zeros(2, np.int64), np.array([[1, 2]])),
    IdBatch(np.zeros(2, np.int64), np.array([[0, 2, 1, 2]])),
    IdBatch(np.zeros(2, np.int64), np.array([[0, 1], [2, 2]])),
    IdBatch(np.zeros(2, np.int64), np.array([[0, 2]]), np.zeros(1, np.float32)),
    IdBatch(np.zeros(2, np.int64), np.array([[0, 2]]), np.zeros(2, np.float64)),
])  # fmt: skip
def test_batches_that_do_not_fit_are_refused(batch: IdBatch) -> None:
    with pytest.raises(BadBatch):
        encode(batch)


def _sample(seed: int = 1) -> IdBatch:
    draw = np.random.default_rng(seed)
    bags = [
        [draw.integers(0, 40, size).tolist() for size in draw.integers(0, 5, 30)],
        [(draw.integers(0, 20, 3) + 2**33).tolist() for _ in range(30)],
        [draw.integers(-(2**62), 2**62, 1).tolist() for _ in range(30)],
        [[] for _ in range(30)],
    ]
    batch = _batch(bags)
    return IdBatch(batch.ids, batch.offsets, draw.random(len(batch.ids)).astype(np.float32))


def test_mutated_bytes_are_refused_or_a_batch() -> None:
    random, refused = Random(4), 0
    for batch in (_sample(), _batch([[[1, 2, 3]] * 20, [[70_000, 5]] * 20], np.int32)):
        original = encode(batch)
        tokens = [
            original[_HEADER_BYTES : _HEADER_BYTES + _RECORD_BYTES],
            b"\xff\xff\xff\xff",
            b"\0\0\0\0",
            b"\x01\0\0\0",
        ]
        for _ in range(scaled(10_000)):
            content = mutated(original, random, tokens)
            try:
                found = decode(content)
            except BadBatch:
                refused += 1
            else:
                _check_equal(decode(encode(found)), found)
    assert refused


def test_every_bit_of_the_records_counts() -> None:
    batch = _sample()
    original = encode(batch)
    for bit in range(8 * (_HEADER_BYTES + 4 * _RECORD_BYTES)):
        content = bytearray(original)
        content[bit // 8] ^= 1 << bit % 8
        try:
            found = decode(content)
        except BadBatch:
            continue
        assert (found.ids.tobytes(), found.offsets.tobytes()) != (batch.ids.tobytes(), batch.offsets.tobytes())


def test_claimed_sizes_take_no_memory() -> None:
    claims = []
    for features, events, ids in (
        (1, 2**32 - 1, 0),
        (2**32 - 1, 1, 0),
        (1, 2**32 - 1, 2**32 - 1),
        (1, 1, 2**32 - 1),
        (1, 0, 0),
    ):
        header = bytes([1, 8, 0, 0]) + features.to_bytes(4, "little") + events.to_bytes(4, "little")
        for tail in (bytes([0, 8, 0, 0]), bytes([1, 1, 0, 0]), bytes([0, 1, 1, 0]), bytes([4, 4, 1, 0])):
            claims.append(header + ids.to_bytes(4, "little") + bytes(8) + tail)
            claims.append(header + ids.to_bytes(4, "little") * 3 + tail)
    refused = 0
    tracemalloc.start()
    try:
        for content in claims:
            try:
                assert len(decode(content).ids) == 0
            except BadBatch:
                refused += 1
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert refused >= len(claims) - 2


def test_more_distinct_ids_than_bytes_are_refused_before_memory_is_taken() -> None:
    content = bytearray(encode(_batch([[[2**40], [2**40 + 1]] * 50])))
    content[_HEADER_BYTES + 4 : _HEADER_BYTES + 8] = (2**30).to_bytes(4, "little")
    tracemalloc.start()
    try:
        with pytest.raises(BadBatch, match="bytes that the encoder writes"):
            decode(content)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_positions_beyond_the_distinct_ids_are_refused() -> None:
    content = bytearray(encode(_batch([[[2**40], [2**40 + 1]] * 50])))
    content[-1] = 2
    with pytest.raises(BadBatch, match="bytes that the encoder writes"):
        decode(content)


def test_ids_beyond_int32_are_refused_in_a_batch_of_int32() -> None:
    plain = bytearray(encode(_batch([[[2**31 - 1]]], np.int32)))
    plain[-1] = 0x80
    distinct = bytearray(encode(_batch([[[2**33], [2**33 + 1]] * 50])))
    distinct[1] = 4
    for content in (plain, distinct):
        with pytest.raises(BadBatch, match="bytes that the encoder writes"):
            decode(content)
