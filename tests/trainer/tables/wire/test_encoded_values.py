"""Values in fewer bits, piece by piece: pieces are those of the array of a batch, and other bytes are one error."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.mutations import mutated
from trainer.errors import BadBatch
from trainer.tables.kernels.outputs import OutputPool
from trainer.tables.routes.servers.placed_rows import places_of
from trainer.tables.wire import encoded_values, fp14_blocks, fp16_blocks
from trainer.tables.wire.encoded_values import FP14, FP16
from transforms.errors import DataError

BLOCKS = {FP16: fp16_blocks, FP14: fp14_blocks}
FLAGS = sorted(BLOCKS)


@st.composite
def messages(draw):
    """The rows of parts on some servers, and ascending columns of the parts."""
    dims = np.array(sorted(draw(st.lists(st.integers(1, 40), min_size=1, max_size=6))), np.int64)
    shape = draw(st.integers(1, 3)), len(dims)
    counts = draw(st.lists(st.integers(0, 9), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    return np.array(counts, np.int64).reshape(shape), dims


@given(messages())
def test_pieces_are_where_rows_of_a_width_stand(message):
    counts, dims = message
    places = places_of(counts, dims)
    values = np.arange(places.floats, dtype=np.float32)
    for server, own in enumerate(counts):
        floats = encoded_values.floats_of_pieces(own, dims)
        assert floats == [stop - first for first, stop in places.ranges[server]]
        views = places.views(server, values)
        for pieces in (encoded_values.split_pieces(views, floats), encoded_values.split_pieces([np.concatenate([values[:0], *views])], floats)):  # fmt: skip
            assert [one.tolist() for one in pieces] == [one.tolist() for one in views]
        assert all(map(np.shares_memory, encoded_values.split_pieces(views, floats), views))


def test_parts_in_any_order_have_pieces():
    """As columns of tables in slices have them."""
    found = encoded_values.floats_of_pieces(np.array([2, 0, 1, 3, 0, 5]), np.array([4, 8, 4, 2, 9, 4]))
    assert found == [12, 6, 20]
    assert encoded_values.floats_of_pieces(np.array([0, 0]), np.array([4, 8])) == []
    assert encoded_values.split_pieces([np.zeros(0, np.float32)], []) == []


@pytest.mark.parametrize("flag", FLAGS)
@given(floats=st.lists(st.integers(1, 300), max_size=4), seed=st.integers(0, 100))
def test_values_come_back_as_their_blocks_say(flag, floats, seed):
    values = np.random.default_rng(seed).normal(size=sum(floats)).astype(np.float32)
    pieces = encoded_values.split_pieces([values], floats)
    buffer = OutputPool().take_bytes(encoded_values.encoded_bytes(floats, flag))
    assert buffer.nbytes == sum(-(-BLOCKS[flag].encoded_bytes(count) // 8) * 8 for count in floats)
    buffer[:] = 0xFF
    encoded_values.encode_pieces(pieces, buffer, flag)
    found = np.empty_like(values)
    encoded_values.decode_pieces(buffer, encoded_values.split_pieces([found], floats), flag)
    for piece, own in zip(pieces, encoded_values.split_pieces([found], floats), strict=True):
        limit = np.maximum(BLOCKS[flag].RELATIVE_ERROR * np.abs(piece), BLOCKS[flag].NORM_ERROR * np.abs(piece).max())
        assert (np.abs(own - piece) <= limit).all()
    again = np.empty_like(buffer)
    encoded_values.encode_pieces(encoded_values.split_pieces([found], floats), again, flag)
    assert again.tobytes() == buffer.tobytes()


def test_values_have_one_encoding():
    assert [encoded_values.value_flag(flags) for flags in (0, 3, FP16, FP14 | 1)] == [0, 0, FP16, FP14]
    with pytest.raises(DataError, match="one encoding"):
        encoded_values.value_flag(FP16 | FP14)


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_are_finite(flag, value):
    pieces = [np.ones(5, np.float32), np.ones(200, np.float32)]
    pieces[1][150] = value
    buffer = np.empty(encoded_values.encoded_bytes([5, 200], flag), np.uint8)
    with pytest.raises(BadBatch, match="finite"):
        encoded_values.encode_pieces(pieces, buffer, flag)


@pytest.mark.parametrize("flag", FLAGS)
def test_mutated_values_are_one_error_or_finite(flag):
    floats = [5, 200, 130]
    size = encoded_values.encoded_bytes(floats, flag)
    buffer, values = np.empty(size, np.uint8), np.random.default_rng(0).normal(size=sum(floats)).astype(np.float32)
    encoded_values.encode_pieces(encoded_values.split_pieces([values], floats), buffer, flag)
    content, read, refused = buffer.tobytes(), 0, 0
    for seed in range(scaled(3000)):
        body = np.zeros(size, np.uint8)
        found = np.frombuffer(mutated(content, Random(seed)), np.uint8)[:size]
        body[: len(found)] = found
        out = np.empty(sum(floats), np.float32)
        try:
            encoded_values.decode_pieces(body, encoded_values.split_pieces([out], floats), flag)
        except BadBatch:
            refused += 1
        else:
            read += 1
            assert np.isfinite(out).all()
    assert read
    assert refused
