"""Bodies about rows: what is written is read, without a copy; other bytes are one error or numbers within the body."""

from __future__ import annotations

import tracemalloc
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.mutations import mutated
from trainer.tables.engine import ChangedRows, RowValues
from trainer.tables.hashed_history import KeptHistory
from trainer.tables.routes.servers import row_messages as messages
from trainer.tables.routes.servers.frames import Header, Kind
from trainer.tables.routes.servers.row_messages import ENCODED_ROWS, LONG_ROWS, RowNumbers
from trainer.tables.wire.encoded_values import (
    FP14,
    FP16,
    decode_pieces,
    encode_pieces,
    encoded_bytes,
    floats_of_pieces,
    split_pieces,
)
from transforms.errors import DataError

#: The columns and slot values of each part.
DIMS, SLOTS = np.array([1, 3, 8, 8], np.int64), np.array([0, 6, 1, 8], np.int64)


MOST = (1 << 63) - 1


def joined(parts) -> bytearray:
    return bytearray(b"".join(parts))


@st.composite
def numbers(draw):
    dtype = draw(st.sampled_from([np.int32, np.int64]))
    counts = np.array([draw(st.integers(0, 5)) for _ in DIMS], np.int64)
    rows = [draw(st.integers(0, int(np.iinfo(dtype).max))) for _ in range(int(counts.sum()))]
    return RowNumbers(np.array(rows, dtype), counts)


def random_values(counts: np.ndarray, seed: int) -> RowValues:
    draw = np.random.default_rng(seed)
    return RowValues(*(draw.normal(size=int((counts * widths).sum())).astype(np.float32) for widths in (DIMS, SLOTS)))


@given(numbers(), st.integers(0, 100))
def test_values_are_read_as_they_were_written(some, seed):
    wanted = RowNumbers(some.rows.astype(np.int64), some.counts)
    values = random_values(some.counts, seed)
    found, read = messages.read_values(joined(messages.write_values(wanted, values)), DIMS, SLOTS)
    assert found.rows.tolist() == wanted.rows.tolist()
    assert found.counts.tolist() == wanted.counts.tolist()
    assert (read.weights.tobytes(), read.slots.tobytes()) == (values.weights.tobytes(), values.slots.tobytes())
    for flat, widths in ((read.weights, DIMS), (read.slots, SLOTS)):
        parts = messages.split_by_part(flat, found.counts, widths)
        assert [one.shape for one in parts] == list(zip(found.counts.tolist(), widths.tolist(), strict=True))
        assert b"".join(one.tobytes() for one in parts) == flat.tobytes()


def test_mutated_values_are_finite_or_refused():
    counts = np.array([2, 0, 3, 1], np.int64)
    body = joined(messages.write_values(RowNumbers(np.arange(6), counts), random_values(counts, 1)))
    refused = 0
    for seed in range(scaled(3000)):
        content = bytearray(mutated(bytes(body), Random(seed)))
        try:
            found, values = messages.read_values(content, DIMS, SLOTS)
        except DataError:
            refused += 1
            continue
        assert len(found.rows) == int(found.counts.sum())
        assert np.isfinite(values.weights).all()
        assert np.isfinite(values.slots).all()
    assert 0 < refused < scaled(3000)


def random_part(rows: int, p: int, seed: int) -> ChangedRows:
    draw = np.random.default_rng(seed)
    own = np.cumsum(draw.integers(1, 9, rows)).astype(np.int64)
    values = [draw.normal(size=(rows, int(width[p]))).astype(np.float32) for width in (DIMS, SLOTS)]
    return ChangedRows(own, *values)


def assert_equal_rows(found: ChangedRows, expected: ChangedRows) -> None:
    for name in ("rows", "weights", "slots"):
        one, other = getattr(found, name), getattr(expected, name)
        assert one.shape == other.shape
        assert one.tobytes() == other.tobytes()


@given(numbers())
def test_numbers_are_read_as_they_were_written(wanted):
    body, flags = joined(messages.write_numbers(wanted)), messages.flags_of(wanted.rows)
    found = messages.read_numbers(body, len(DIMS), flags)
    assert found.rows.dtype == wanted.rows.dtype
    assert found.rows.tolist() == wanted.rows.tolist()
    assert found.counts.tolist() == wanted.counts.tolist()


@given(numbers(), st.integers(0, 100), st.integers(-1, 5))
def test_lookups_come_with_gradients(wanted, seed, least):
    draw = np.random.default_rng(seed)
    values = draw.normal(size=int((wanted.counts * DIMS).sum())).astype(np.float32)
    lookups = draw.integers(0, 9, len(wanted.rows)).astype(np.int32)
    lookups[:1] = least
    body = joined(messages.write_gradients(wanted, np.ones(len(DIMS), np.float32), [values], lookups))
    flags = messages.flags_of(wanted.rows)
    if len(lookups) and least < 0:
        with pytest.raises(DataError, match="lookups of rows must be >= 0"):
            messages.read_gradients(body, DIMS, flags, has_lookups=True)
        return
    found = messages.read_gradients(body, DIMS, flags, has_lookups=True)
    assert (found.lookups.tolist(), found.values.tobytes()) == (lookups.tolist(), values.tobytes())
    if len(lookups):
        with pytest.raises(DataError, match="the length that its numbers state"):
            messages.read_gradients(body, DIMS, flags)


@given(numbers(), st.integers(0, 100), st.integers(1, 7))
def test_gradients_are_read_as_they_were_written(wanted, seed, pieces):
    draw = np.random.default_rng(seed)
    values = draw.normal(size=int((wanted.counts * DIMS).sum())).astype(np.float32)
    rates = draw.random(len(DIMS), np.float32)
    parts = messages.write_gradients(wanted, rates, np.array_split(values, pieces))
    found = messages.read_gradients(joined(parts), DIMS, messages.flags_of(wanted.rows))
    assert found.values.tobytes() == values.tobytes()
    assert found.rates.tobytes() == rates.tobytes()
    assert found.numbers.rows.tolist() == wanted.rows.tolist()
    assert found.numbers.counts.tolist() == wanted.counts.tolist()


def test_no_value_of_a_message_is_copied():
    rows, values = np.arange(8, dtype=np.int32), np.ones(64, np.float32)
    wanted = RowNumbers(rows, np.array([0, 0, 8, 0], np.int64))
    body = messages.write_gradients(wanted, np.ones(4, np.float32), [values[:32], values[32:]])
    assert any(np.shares_memory(np.frombuffer(part, np.uint8), values) for part in body)
    received = joined(body)
    found = messages.read_gradients(received, DIMS, 0)
    for array in (found.values, found.numbers.rows):
        assert np.shares_memory(array, np.frombuffer(received, np.uint8))


def test_arrays_begin_at_multiples_of_eight_bytes():
    wanted = RowNumbers(np.arange(3, dtype=np.int32), np.array([3, 0, 0, 0], np.int64))
    received = joined(messages.write_gradients(wanted, np.ones(4, np.float32), [np.ones(3, np.float32)]))
    found = messages.read_gradients(received, DIMS, 0)
    start = np.frombuffer(received, np.uint8).ctypes.data
    for array in (found.numbers.counts, found.rates, found.numbers.rows, found.values):
        assert (array.ctypes.data - start) % 8 == 0


@given(st.integers(0, 20), st.integers(0, len(DIMS) - 1), st.integers(0, 100))
def test_saved_rows_are_read_as_they_were_written(rows, p, seed):
    part = random_part(rows, p, seed)
    assert_equal_rows(messages.read_part(joined(messages.write_part(part)), int(DIMS[p]), int(SLOTS[p])), part)
    found_p, found, _ = messages.read_load(joined(messages.write_load(p, part)), DIMS, SLOTS)
    assert found_p == p
    assert_equal_rows(found, part)


def test_ranges_and_counts_are_read_as_they_were_written():
    sizes = np.array([10, 1 << 40], np.int64)
    for wanted in ((0, 0, 10), (1, 5, 5), (1, 0, 1 << 40), (1, 0, 0)):
        assert messages.read_range(joined(messages.write_counts(wanted)), sizes) == wanted
    assert messages.read_counts(joined(messages.write_counts([3, 0, 1 << 50])), 3) == (3, 0, 1 << 50)


@pytest.mark.parametrize(
    "wanted", [(-1, 0, 1), (2, 0, 1), (0, -1, 1), (0, 2, 1), (0, 0, 11), (0, 0, 1 << 62), (-(1 << 63), 0, 0)]
)
def test_a_range_lies_in_its_part(wanted):
    with pytest.raises(DataError, match="be rows of a part"):
        messages.read_range(joined(messages.write_counts(wanted)), np.array([10, 10], np.int64))


@pytest.mark.parametrize(
    "counts",
    [
        [-1, 0, 0, 0],
        [1, 0, 0, 0],
        [MOST, MOST, MOST, MOST],
        [MOST, 1, 0, 0],
        [1 << 62, 1 << 62, 1 << 62, 1 << 62],
        [0, 0, 1 << 61, 0],
        [0, 0, 1 << 60, 1 << 60],
    ],
)
def test_counts_that_wrap_around_are_refused(counts):
    body = joined(messages.write_counts(counts))
    for flags in (0, LONG_ROWS, ENCODED_ROWS, FP14, ENCODED_ROWS | FP16):
        with pytest.raises(DataError):
            messages.read_numbers(body, len(DIMS), flags)
        with pytest.raises(DataError):
            messages.read_gradients(body + bytes(16), DIMS, flags)


@pytest.mark.parametrize("flags", [3, 12, 16, 17, 0xFFFF])
def test_unknown_flags_are_refused(flags):
    body = joined(messages.write_counts([0] * len(DIMS)))
    with pytest.raises(DataError, match="flags"):
        messages.read_numbers(body, len(DIMS), flags)
    with pytest.raises(DataError, match="flags"):
        messages.read_gradients(body + bytes(16), DIMS, flags)
    for kind in (Kind.FETCH, Kind.UPDATE):
        with pytest.raises(DataError, match="flags"):
            messages.check_flags(Header(kind, flags=flags))


def test_flags_are_those_of_the_kind():
    for flags in (0, LONG_ROWS, ENCODED_ROWS, FP16, FP14, ENCODED_ROWS | FP14, LONG_ROWS | FP16):
        for kind in Kind:
            if flags and kind not in (Kind.FETCH, Kind.UPDATE):
                with pytest.raises(DataError, match="flags"):
                    messages.check_flags(Header(kind, flags=flags))
            else:
                messages.check_flags(Header(kind, flags=flags))


def encoded_update(wanted: RowNumbers, flag: int, seed: int = 0) -> tuple[list, np.ndarray]:
    """The body of an update whose rows and values are encoded, and its values as they come back."""
    floats = floats_of_pieces(wanted.counts, DIMS)
    values = np.random.default_rng(seed).normal(size=sum(floats)).astype(np.float32)
    buffer = np.empty(encoded_bytes(floats, flag), np.uint8)
    encode_pieces(split_pieces([values], floats), buffer, flag)
    decode_pieces(buffer, split_pieces([values], floats), flag)
    return messages.write_gradients(wanted, np.ones(len(DIMS), np.float32), [buffer]), values


@given(numbers(), st.sampled_from([FP16, FP14]))
def test_encoded_rows_and_values_are_read_as_they_were_written(some, flag):
    wanted = messages.encode_rows(some.rows.astype(np.int64), some.counts)
    body = joined(messages.write_numbers(wanted))
    found = messages.read_numbers(body, len(DIMS), wanted.flags)
    assert found.rows.tolist() == some.rows.tolist()
    assert found.counts.tolist() == some.counts.tolist()
    parts, values = encoded_update(wanted, flag)
    update = messages.read_gradients(joined(parts), DIMS, wanted.flags | flag)
    assert update.values.tobytes() == values.tobytes()
    assert update.numbers.rows.tolist() == some.rows.tolist()


def test_ascending_rows_take_fewer_bytes_and_others_as_many_as_they_need():
    counts = np.array([0, 1000, 0, 0], np.int64)
    ascending = np.arange(0, 3000, 3)
    assert len(messages.encode_rows(ascending, counts).encoded) < 1100
    assert len(messages.encode_rows(ascending[::-1].copy(), counts).encoded) == 4000 + len(counts)


@pytest.mark.parametrize("size", [-1, 0, 5, 7, 1 << 40, MOST, -MOST])
def test_the_length_of_encoded_rows_is_checked_before_memory_is_taken(size):
    wanted = messages.encode_rows(np.arange(3), np.array([3, 0, 0, 0]))
    body = joined(messages.write_numbers(wanted))
    assert len(wanted.encoded) == 11
    body[32:40] = size.to_bytes(8, "little", signed=True)
    with pytest.raises(DataError):
        messages.read_numbers(body, len(DIMS), ENCODED_ROWS)


@pytest.mark.parametrize("rate", [np.nan, np.inf, -np.inf, -0.5])
def test_rates_are_finite_and_not_negative(rate):
    rates = np.array([1.0, 0.0, rate, 0.5], np.float32)
    body = joined(messages.write_gradients(RowNumbers(np.zeros(0, np.int32), np.zeros(4, np.int64)), rates, []))
    with pytest.raises(DataError, match="learning rates"):
        messages.read_gradients(body, DIMS, 0)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["weights", "slots"])
def test_saved_values_are_finite(name, value):
    part = random_part(4, 1, 0)
    getattr(part, name)[2, 1] = value
    with pytest.raises(DataError, match="finite"):
        messages.read_load(joined(messages.write_load(1, part)), DIMS, SLOTS)


@pytest.mark.parametrize("rows", [[1, 1, 2], [2, 1, 3], [-1, 0, 1], [-(1 << 63), 0, 1]])
def test_saved_rows_ascend(rows):
    part = random_part(3, 1, 0)
    part.rows[:] = rows
    with pytest.raises(DataError, match="ascend"):
        messages.read_part(joined(messages.write_part(part)), int(DIMS[1]), int(SLOTS[1]))


def _readers(whole: dict[str, bytes]):
    """Of each kind of body, what reads it, and what must be true of what was read."""
    sizes = np.array([100, 100, 100, 100], np.int64)

    def right_numbers(found, body):
        assert (found.counts >= 0).all()
        assert len(found.rows) == int(found.counts.sum())
        assert found.rows.nbytes <= len(body)

    def right_gradients(found, body):
        right_numbers(found.numbers, body)
        assert len(found.values) == int((found.numbers.counts * DIMS).sum())
        assert (found.rates >= 0).all()

    def right_decoded_numbers(found, body):
        assert len(found.rows) == int(found.counts.sum())
        assert found.rows.nbytes + len(body) <= messages.memory_bytes(Header(Kind.FETCH, len(body), flags=ENCODED_ROWS))

    def right_decoded(found, body):
        memory = found.numbers.rows.nbytes + found.values.nbytes + len(body)
        assert memory <= messages.memory_bytes(Header(Kind.UPDATE, len(body), flags=ENCODED_ROWS | FP14))
        assert len(found.values) == int((found.numbers.counts * DIMS).sum())
        assert np.isfinite(found.values).all()

    def right_part(found, body):
        assert found.weights.shape == (len(found.rows), DIMS[1])
        assert found.slots.shape == (len(found.rows), SLOTS[1])
        assert np.isfinite(found.weights).all()

    def right_range(found, body):
        p, first, stop = found
        assert 0 <= p < 4
        assert 0 <= first <= stop <= 100

    yield whole["numbers"], lambda body, flags: messages.read_numbers(body, 4, flags), right_numbers
    yield whole["gradients"], lambda body, flags: messages.read_gradients(body, DIMS, flags), right_gradients
    yield whole["part"], lambda body, _: messages.read_part(body, int(DIMS[1]), int(SLOTS[1])), right_part
    yield whole["load"], lambda body, _: messages.read_load(body, DIMS, SLOTS), lambda found, _: None
    aged = (False, True, False, False)

    def right_ages(found, body):
        rows, ages = found[-2:]
        assert ages is None or len(ages) == len(rows.rows)

    def right_history(found, body):
        part, history, first = found
        assert aged[part]
        assert first >= 0
        assert history.candidates.nbytes <= len(body)

    yield whole["aged part"], lambda body, _: messages.read_aged_part(body, int(DIMS[1]), int(SLOTS[1])), right_ages
    yield whole["aged load"], lambda body, _: messages.read_load(body, DIMS, SLOTS, aged), right_ages
    yield whole["history"], lambda body, _: messages.read_history(body, aged), right_history
    yield whole["candidates"], lambda body, _: messages.read_numbers_of_history(body, aged), lambda found, _: None
    yield whole["range"], lambda body, _: messages.read_range(body, sizes), right_range
    yield whole["counts"], lambda body, _: messages.read_counts(body, 4), lambda found, _: None

    encoded = (ENCODED_ROWS, ENCODED_ROWS | FP16, ENCODED_ROWS | FP14)
    for flags in encoded:
        yield (
            whole["encoded numbers"],
            lambda body, _, f=flags: messages.read_numbers(body, 4, f),
            right_decoded_numbers,
        )
    for flags in encoded[1:]:
        yield whole[f"encoded {flags}"], lambda body, _, f=flags: messages.read_gradients(body, DIMS, f), right_decoded


TOKENS = [
    number.to_bytes(8, "little", signed=True)
    for number in (0, 1, -1, 7, 1 << 31, 1 << 32, 1 << 60, 1 << 61, 1 << 62, MOST, -MOST - 1)
]


HISTORY = KeptHistory(9, np.arange(8, dtype=np.uint64), 3)


def test_ages_and_histories_are_read_as_they_were_written():
    part, ages = random_part(5, 1, 0), np.arange(5, 10)
    found_p, found, found_ages = messages.read_load(
        joined(messages.write_load(1, part, ages)), DIMS, SLOTS, (False, True)
    )
    assert (found_p, found_ages.tolist()) == (1, ages.tolist())
    assert found.weights.tobytes() == part.weights.tobytes()
    found, found_ages = messages.read_aged_part(joined(messages.write_part(part, ages)), int(DIMS[1]), int(SLOTS[1]))
    assert (found.rows.tolist(), found_ages.tolist()) == (part.rows.tolist(), ages.tolist())
    found_p, history, first = messages.read_history(joined(messages.write_history(1, HISTORY, 8)), (False, True))
    assert (found_p, history.step, history.evicted, first) == (1, 9, 3, 8)
    assert history.candidates.tolist() == HISTORY.candidates.tolist()


@pytest.mark.medium
def test_a_mutated_body_is_one_error_or_right():
    """Thousands of bodies: no crash, no memory beside the body's, and numbers that agree with each other."""
    some = RowNumbers(np.arange(6, dtype=np.int32), np.array([1, 2, 0, 3], np.int64))
    floats = np.ones(int((some.counts * DIMS).sum()), np.float32)
    whole = {
        "numbers": joined(messages.write_numbers(some)),
        "gradients": joined(messages.write_gradients(some, np.ones(4, np.float32), [floats])),
        "part": joined(messages.write_part(random_part(5, 1, 0))),
        "load": joined(messages.write_load(1, random_part(5, 1, 0))),
        "aged part": joined(messages.write_part(random_part(5, 1, 0), np.arange(5))),
        "aged load": joined(messages.write_load(1, random_part(5, 1, 0), np.arange(5))),
        "history": joined(messages.write_history(1, HISTORY, 8)),
        "candidates": joined(messages.write_counts([1, 0, 8])),
        "range": joined(messages.write_counts([1, 5, 50])),
        "counts": joined(messages.write_counts([1, 2, 3, 4])),
    }
    ascending = messages.encode_rows(np.arange(6), some.counts)
    whole["encoded numbers"] = joined(messages.write_numbers(ascending))
    for flag in (FP16, FP14):
        whole[f"encoded {ENCODED_ROWS | flag}"] = joined(encoded_update(ascending, flag)[0])
    read = refused = 0
    tracemalloc.start()
    try:
        for content, reader, is_right in _readers(whole):
            for seed in range(scaled(2000)):
                random = Random(seed)
                body = bytearray(mutated(bytes(content), random, TOKENS, most=3))
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
                try:
                    found = reader(body, random.choice((0, 0, LONG_ROWS)))
                except DataError:
                    refused += 1
                else:
                    read += 1
                    is_right(found, body)
                assert tracemalloc.get_traced_memory()[1] - before < 64 << 10
    finally:
        tracemalloc.stop()
    assert read
    assert refused > read
