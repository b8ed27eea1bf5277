"""The buckets of dense gradients cover the vector once, and their groups are handed over in the order of the backward pass."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.job.host.dense.gradient_buckets import ONE_ROUND_BYTES, GradientBuckets


@settings(max_examples=scaled(200))
@given(st.lists(st.integers(0, 60), max_size=12), st.integers(1, 7), st.integers(4, 300))
def test_buckets_cover_the_vector_from_its_end(sizes, hosts, bucket_bytes):
    found = GradientBuckets.of(sizes, hosts, bucket_bytes)
    places = [place for group in found.groups for place in group]
    assert places == list(reversed(range(len(sizes))))
    at = found.size
    for bucket in found.buckets:
        assert bucket.stop == at
        at = bucket.start
        assert hosts == 1 or 4 * (bucket.stop - bucket.start) <= bucket_bytes
        assert [start for start, _ in bucket.segments[1:]] == [stop for _, stop in bucket.segments[:-1]]
        assert (bucket.segments[0][0], bucket.segments[-1][1]) == (bucket.start, bucket.stop)
    assert at == 0
    assert found.size == sum(sizes)
    assert found.ready[-1] == len(found.buckets)
    assert list(found.ready) == sorted(set(found.ready))


@settings(max_examples=scaled(200))
@given(st.lists(st.integers(0, 200), max_size=8), st.integers(2, 7), st.integers(4, 900), st.integers(2, 70))
def test_aligned_buckets_cover_the_vector_and_cut_at_multiples(sizes, hosts, bucket_bytes, aligned):
    found = GradientBuckets.of(sizes, hosts, bucket_bytes, aligned=aligned)
    at = found.size
    for bucket in found.buckets:
        assert bucket.stop == at
        at = bucket.start
        assert not bucket.is_whole
        assert bucket.start < bucket.stop or not found.size
        assert 4 * (bucket.stop - bucket.start) <= bucket_bytes + 4 * aligned
        assert [start for start, _ in bucket.segments[1:]] == [stop for _, stop in bucket.segments[:-1]]
        assert (bucket.segments[0][0], bucket.segments[-1][1]) == (bucket.start, bucket.stop)
        assert all(start % aligned == 0 for start, _ in bucket.segments)
        sizes_of = [stop - start for start, stop in bucket.segments]
        assert max(sizes_of) - min(sizes_of) <= 2 * aligned
    assert at == 0
    assert found.ready[-1] == len(found.buckets)
    assert all(first % aligned == 0 for first in found.offsets)
    ends = [first + size for first, size in zip(found.offsets, sizes, strict=True)]
    for end, begin in zip(ends, [*found.offsets[1:], found.size], strict=bool(sizes)):
        assert 0 <= begin - end < aligned


@settings(max_examples=scaled(200))
@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.integers(2, 7), st.integers(4, 300))
def test_a_bucket_is_ready_when_its_variables_are_there(sizes, hosts, bucket_bytes):
    found = GradientBuckets.of(sizes, hosts, bucket_bytes)
    for group, ready in zip(found.groups, found.ready, strict=True):
        first = found.offsets[group[-1]]
        complete = [number for number, one in enumerate(found.buckets) if one.start >= first]
        assert complete == list(range(ready))


def test_a_small_bucket_and_two_hosts_take_one_round():
    floats = ONE_ROUND_BYTES // 4
    assert GradientBuckets.of([1 << 20], 2).buckets[0].is_whole
    assert not GradientBuckets.of([1 << 20], 3).buckets[0].is_whole
    assert GradientBuckets.of([floats], 3).buckets[0].is_whole  # (H - 1) (H - 2) / H = 2/3 of its bytes more
    assert not GradientBuckets.of([2 * floats], 3).buckets[0].is_whole
    assert len(GradientBuckets.of([1 << 20], 1).buckets) == 1
