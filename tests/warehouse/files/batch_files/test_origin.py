from __future__ import annotations

import io
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.mutations import mutated
from transforms.errors import DataError
from warehouse.files.batch_files.origin import BatchOrigin, read_origin

ORIGIN = BatchOrigin("ctr", 3, "log", ("clicked", "words"), ("ab" * 32, "cd" * 32))


def read(content):
    return read_origin(io.BytesIO(content))


@settings(max_examples=scaled(30))
@given(
    st.text(min_size=1, max_size=20).filter(lambda name: "\0" not in name),
    st.lists(st.text(max_size=9), max_size=5),
    st.integers(0, 50),
)
def test_the_head_of_a_file_says_what_it_was_made_from(name, columns, fragments):
    origin = BatchOrigin(name, 1, name, tuple(columns), ("0a" * 32,) * fragments)
    head = origin.to_bytes()
    assert len(head) % 8 == 0
    assert read(head + b"batches") == (origin, len(head))


@settings(max_examples=scaled(30))
@given(seed=st.integers(0, 2**32))
def test_damaged_heads_are_refused(seed):
    content, random = ORIGIN.to_bytes(), Random(seed)
    for _ in range(100):
        damaged = mutated(content, random, tokens=(b"\xff" * 8,))
        if not damaged.startswith(content):
            with pytest.raises(DataError):
                read(damaged)


@pytest.mark.parametrize("size", [0, 8, 23, 24, 100])
def test_cut_heads_are_refused(size):
    with pytest.raises(DataError, match="as it was written"):
        read(ORIGIN.to_bytes()[:size])
