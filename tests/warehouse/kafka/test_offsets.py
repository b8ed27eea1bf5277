"""Which messages of a topic come next: decisions without a broker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.errors import DataError
from warehouse.kafka.offsets import Bounds, OffsetRange, advance, check_topic_id, lag, next_offsets, ranges_text

TOPIC = "kafka://a:1/clicks"
BOUNDS = st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda pair: Bounds(pair[0], sum(pair)))


@given(st.dictionaries(st.integers(0, 5), BOUNDS, min_size=1))
def test_a_table_begins_at_one_end_of_each_partition(found: dict[int, Bounds]) -> None:
    first, last = next_offsets(None, found, "earliest", TOPIC), next_offsets(None, found, "latest", TOPIC)
    assert first.offsets == {partition: one.earliest for partition, one in found.items()}
    assert last.offsets == {partition: one.end for partition, one in found.items()}
    assert lag(last.offsets, found) == 0


@given(st.dictionaries(st.integers(0, 5), BOUNDS, min_size=1), st.data())
def test_a_table_goes_on_where_it_is_or_says_what_is_lost(found: dict[int, Bounds], data: st.DataObject) -> None:
    known = data.draw(st.sets(st.sampled_from(sorted(found))))
    kept = {partition: data.draw(st.integers(0, found[partition].end)) for partition in known}
    lost = {
        partition: (kept.get(partition, 0), one.earliest)
        for partition, one in found.items()
        if kept.get(partition, 0) < one.earliest
    }
    accepted = next_offsets(kept, found, "earliest", TOPIC, accept_lost=True)
    assert {one.partition: (one.first, one.next) for one in accepted.lost} == lost
    assert all(
        accepted.offsets[partition] == max(kept.get(partition, 0), found[partition].earliest) for partition in found
    )
    if lost:
        with pytest.raises(DataError, match="were deleted"):
            next_offsets(kept, found, "earliest", TOPIC)
    else:
        assert next_offsets(kept, found, "latest", TOPIC).offsets == accepted.offsets


def test_a_topic_must_not_end_before_the_messages_that_were_read() -> None:
    with pytest.raises(DataError, match="made again or lost its newest") as caught:
        next_offsets({0: 9}, {0: Bounds(0, 4)}, "earliest", TOPIC)
    assert caught.value.value == "messages read but not there: 0: 4-8"
    assert next_offsets({0: 9}, {0: Bounds(0, 4)}, "earliest", TOPIC, accept_lost=True).offsets == {0: 4}


def test_a_topic_must_keep_its_partitions_and_its_identity() -> None:
    with pytest.raises(DataError, match="keep its partitions") as caught:
        next_offsets({0: 1, 1: 1}, {0: Bounds(0, 4)}, "earliest", TOPIC, accept_lost=True)
    assert caught.value.value == "no partition 1"
    check_topic_id("", "b", TOPIC, "log")
    check_topic_id("a", "a", TOPIC, "log")
    with pytest.raises(DataError, match="deleted and made again") as again:
        check_topic_id("a", "b", TOPIC, "log")
    assert "headrace table drop log" in again.value.next_step


def test_offsets_rise_with_gaps() -> None:
    assert advance(4, 9, TOPIC) == 10
    with pytest.raises(DataError, match="must rise"):
        advance(4, 3, TOPIC)


def test_many_ranges_are_counted() -> None:
    ranges = [OffsetRange(partition, 0, 5) for partition in range(6)]
    assert ranges_text(ranges) == "0: 0-4, 1: 0-4, 2: 0-4, 3: 0-4 and 2 more partitions"
