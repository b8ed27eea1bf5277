"""Ascending numbers as differences: any int64, one encoding each, and no other bytes."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.mutations import mutated
from trainer.tables.wire.ascending import MOST_BYTES, put_ascending, take_ascending

Array = np.ndarray[Any, np.dtype[Any]]
_LEAST, _MOST = -(2**63), 2**63 - 1


def _encoded(numbers: Array) -> Array:
    out = np.zeros(MOST_BYTES * len(numbers), np.uint8)
    size = put_ascending(numbers, out)
    assert size >= 0
    return out[:size]


def _decoded(buffer: Array, count: int) -> Array | None:
    out = np.empty(count, np.int64)
    return out if take_ascending(buffer, out) else None


@settings(max_examples=scaled(1000))
@given(st.sets(st.integers(_LEAST, _MOST) | st.integers(-300, 300) | st.sampled_from((_LEAST, _MOST)), max_size=60))
def test_any_ascending_numbers_come_back(numbers: set[int]) -> None:
    ascending = np.array(sorted(numbers), np.int64)
    buffer = _encoded(ascending)
    found = _decoded(buffer, len(ascending))
    assert found is not None
    assert (found == ascending).all()
    assert _decoded(buffer[:-1], len(ascending)) is None or not len(buffer)
    assert _decoded(np.append(buffer, np.uint8(0)), len(ascending)) is None


@pytest.mark.parametrize("numbers", [[1, 1], [2, 1], [_MOST, _LEAST], [0, 5, 5], [-1, -2]])
def test_numbers_that_do_not_ascend_have_no_encoding(numbers: list[int]) -> None:
    assert put_ascending(np.array(numbers, np.int64), np.zeros(40, np.uint8)) == -1


@pytest.mark.parametrize(("numbers", "size"), [
    ([0], 1), ([63], 1), ([64], 2), ([-64], 1), ([0, 128], 2), ([0, 129], 3), ([0, 1 + (1 << 14)], 4), ([_LEAST, _MOST], 20),
])  # fmt: skip
def test_sizes(numbers: list[int], size: int) -> None:
    assert len(_encoded(np.array(numbers, np.int64))) == size


@pytest.mark.parametrize("content", [
    b"\x80\x00",  # overlong
    b"\xff" * 9 + b"\x02",  # 65 bits
    b"\xff" * 10 + b"\x01",  # 11 bytes
    b"\x80",
    b"",
])  # fmt: skip
def test_other_bytes_of_a_number_are_refused(content: bytes) -> None:
    assert _decoded(np.frombuffer(content, np.uint8), 1) is None


def test_a_difference_beyond_int64_is_refused() -> None:
    last = _encoded(np.array([_MOST], np.int64))
    assert _decoded(np.append(last, np.uint8(0)), 2) is None
    assert _decoded(np.append(_encoded(np.array([_MOST - 1], np.int64)), np.uint8(0)), 2) is not None


def test_mutated_bytes_are_refused_or_encoded_the_same() -> None:
    draw = np.random.default_rng(3)
    numbers = np.unique(np.concatenate([draw.integers(0, 10_000, 200), draw.integers(_LEAST, _MOST, 20)]))
    original, random, refused = _encoded(numbers).tobytes(), Random(3), 0
    for _ in range(scaled(20_000)):
        content = np.frombuffer(mutated(original, random), np.uint8)
        found = _decoded(content, len(numbers))
        refused += found is None
        assert found is None or _encoded(found).tobytes() == content.tobytes()
    assert refused
