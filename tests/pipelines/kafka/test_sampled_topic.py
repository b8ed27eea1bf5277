"""Which messages of a topic are its sample."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.kafka.sampled_topic import newest_offsets
from tests.support.examples import scaled
from warehouse.kafka.offsets import Bounds


def test_partitions_have_equal_shares_of_which_the_newest_are_taken() -> None:
    bounds = {0: Bounds(0, 100), 1: Bounds(40, 100), 2: Bounds(7, 7)}
    assert newest_offsets(bounds, 20) == {0: 90, 1: 90, 2: 7}


def test_what_a_short_partition_lacks_others_add() -> None:
    assert newest_offsets({0: Bounds(0, 4), 1: Bounds(0, 1_000)}, 100) == {0: 0, 1: 904}


@settings(max_examples=scaled(100))
@given(
    st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=6),
    st.integers(1, 200),
)
def test_a_sample_has_so_many_offsets_or_all(sizes: dict[int, tuple[int, int]], rows: int) -> None:
    bounds = {partition: Bounds(first, first + length) for partition, (first, length) in sizes.items()}
    begins = newest_offsets(bounds, rows)
    assert begins.keys() == bounds.keys()
    assert all(one.earliest <= begins[partition] <= one.end for partition, one in bounds.items())
    taken = sum(one.end - begins[partition] for partition, one in bounds.items())
    assert taken == min(rows, sum(length for _, length in sizes.values()))
