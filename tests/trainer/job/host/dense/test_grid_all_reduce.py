"""Sums of dense gradients in two legs: equal on all hosts, equal to flat sums where these are exact, with fewer bytes between machines."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.thread_channels import on_channels
from trainer.errors import ConfigError
from trainer.job.host.dense.dense_sums import all_reduce_of, figures_of
from trainer.job.host.dense.gradient_buckets import GradientBuckets
from trainer.job.host.dense.grid_all_reduce import GridAllReduce, bytes_of, split_notes
from trainer.planning.host_grid import HostGrid
from trainer.tables.wire import bfloat16
from transforms.errors import DataError

GRIDS = st.builds(HostGrid, st.integers(2, 4), st.integers(2, 4))


def vector_of(rank, step, size):
    """Floats of many magnitudes, whose sum depends on the order."""
    rng = np.random.default_rng((rank, step))
    return (rng.standard_normal(size) * 10.0 ** rng.integers(-6, 6, size)).astype(np.float32)


def whole_numbers(rank, step, size):
    """Small whole numbers: their sums are exact in any order."""
    return np.random.default_rng((rank, step)).integers(-99, 100, size).astype(np.float32)


class Doubled:
    """Updates that double the sums of a segment, and note the first byte of each float."""

    def __init__(self):
        self.taken = {}

    def update(self, bucket, floats):
        floats *= 2
        return floats.view(np.uint8)[::4].copy()

    def take(self, bucket, sender, notes):
        self.taken[bucket, sender] = notes.copy()


def sums_on(grid, sizes, rows, bucket_bytes, *, in_legs, draw=vector_of, steps=2, values="float32", updated=False, delays=0.0):  # fmt: skip
    """By host: the vectors and shares of each step, and the bytes that it sent to each other host without numbers of events."""
    layout = GradientBuckets.of(
        sizes, grid.hosts, bucket_bytes, aligned=4 if updated else 1, grid=grid if in_legs else None
    )

    def work(channels):
        rank, found = channels.shares.rank, []
        updates = Doubled() if updated else None
        reduce = all_reduce_of(channels, layout, updates, values)
        assert isinstance(reduce, GridAllReduce) == in_legs
        for step in range(steps):
            vector = draw(rank, step, layout.size)
            reduce.begin(rows[rank])
            for number, group in enumerate(layout.groups):
                reduce.put(number, [vector[layout.offsets[place] :][: sizes[place]] for place in group])
            total = reduce.finish()
            found.append((total.vector.copy(), total.share))
        legs = channels.legs
        each = (channels.shares, channels.sums, legs.near_shares, legs.near_sums, legs.far_shares, legs.far_sums)
        sent = sum((one.sent_to for one in each), Counter())
        figures = figures_of(channels, layout, sends_weights=updated, values=values)
        return SimpleNamespace(found=found, sent=sent, figures=figures, taken=updates and updates.taken)

    return on_channels(grid.hosts, work, delays=delays, grid=grid)


def in_order_of_machines(grid, vectors, rows):
    """The sum that the documentation promises: by rank inside each machine, then by machine."""
    shares = [np.float32(one / max(sum(rows), 1)) for one in rows]
    of_machines = []
    for machine in range(grid.machines):
        own = range(machine * grid.places, (machine + 1) * grid.places)
        total = vectors[own[0]] * shares[own[0]]
        for rank in own[1:]:
            total = total + vectors[rank] * shares[rank]
        of_machines.append(total)
    return of_machines


def added(parts):
    total = parts[0] + parts[1]
    for part in parts[2:]:
        total = total + part
    return total


@settings(max_examples=scaled(40))
@given(GRIDS, st.lists(st.integers(0, 500), max_size=5), st.integers(4, 2500), st.data())
def test_the_sum_is_that_in_the_order_of_machines(grid, sizes, bucket_bytes, data):
    """On all hosts, bit for bit, whatever the buckets."""
    rows = data.draw(st.lists(st.integers(0, 9), min_size=grid.hosts, max_size=grid.hosts))
    for rank, one in enumerate(sums_on(grid, sizes, rows, bucket_bytes, in_legs=True)):
        for step, (total, share) in enumerate(one.found):
            vectors = [vector_of(r, step, sum(sizes)) for r in range(grid.hosts)]
            assert total.tobytes() == added(in_order_of_machines(grid, vectors, rows)).tobytes()
            assert share == np.float32(rows[rank] / max(sum(rows), 1))


@settings(max_examples=scaled(25))
@given(
    st.builds(HostGrid, st.sampled_from([2, 4]), st.sampled_from([2, 4])),
    st.lists(st.integers(1, 300), min_size=1, max_size=4),
    st.integers(4, 1500),
)
def test_exact_sums_have_the_bits_of_flat_ones(grid, sizes, bucket_bytes):
    """Shares of equal hosts are powers of two here, so each product and sum of small whole numbers is exact."""
    rows = [3] * grid.hosts
    legs, flat = (sums_on(grid, sizes, rows, bucket_bytes, in_legs=one, draw=whole_numbers) for one in (True, False))
    for one, other in zip(legs, flat, strict=True):
        assert [total.tobytes() for total, _ in one.found] == [total.tobytes() for total, _ in other.found]


@settings(max_examples=scaled(25))
@given(GRIDS, st.lists(st.integers(1, 400), min_size=1, max_size=4), st.integers(4, 1500), st.booleans(), st.sampled_from(["float32", "bf16"]))  # fmt: skip
def test_bytes_of_each_leg_are_those_of_the_formula(grid, sizes, bucket_bytes, updated, values):
    """And those between machines are those of flat sums over the places of a machine."""
    far = {}
    for in_legs in (True, False):
        steps = 2
        found = sums_on(grid, sizes, [1] * grid.hosts, bucket_bytes, in_legs=in_legs, steps=steps, values=values, updated=updated)  # fmt: skip
        assert len({one.figures for one in found}) == 1
        figures = found[0].figures
        assert (figures.machines, figures.places, figures.in_legs) == (grid.machines, grid.places, int(in_legs))
        sent = Counter()
        for rank, one in enumerate(found):
            for to, size in one.sent.items():
                sent["near" if to // grid.places == rank // grid.places else "far"] += size
        near_pairs, far_pairs = grid.hosts * (grid.places - 1), grid.hosts * (grid.hosts - grid.places)
        beside = Counter(near=8 * near_pairs, far=8 * far_pairs)  # numbers of events
        if updated:  # a byte a float of the segments, and in a column their lengths
            layout = GradientBuckets.of(sizes, grid.hosts, bucket_bytes, aligned=4, grid=grid if in_legs else None)
            pairs = (grid.machines * (grid.places - 1), grid.machines - 1) if in_legs else (grid.places - 1, grid.hosts - grid.places)  # fmt: skip
            beside["near"] += pairs[0] * layout.size + (8 * grid.machines * near_pairs * len(layout.buckets) if in_legs else 0)  # fmt: skip
            beside["far"] += pairs[1] * layout.size
        assert sent["near"] == steps * (figures.near_bytes + beside["near"])
        assert sent["far"] == steps * (figures.far_bytes + beside["far"])
        far[in_legs] = figures
    whole = far[False].far_bytes
    is_whole = GradientBuckets.of(sizes, grid.hosts, bucket_bytes).whole_floats and not updated
    assert whole >= far[True].far_bytes * grid.places if is_whole else whole == far[True].far_bytes * grid.places


def test_timing_changes_no_bit():
    grid, sizes = HostGrid(2, 3), [300] * 8
    straight, delayed = (sums_on(grid, sizes, (3, 2, 4, 0, 1, 1), 1000, in_legs=True, delays=one) for one in (0.0, 0.004))  # fmt: skip
    for one, other in zip(straight, delayed, strict=True):
        assert [total.tobytes() for total, _ in one.found] == [total.tobytes() for total, _ in other.found]


@settings(max_examples=scaled(20))
@given(GRIDS, st.lists(st.integers(1, 75), min_size=1, max_size=4), st.integers(64, 1500), st.booleans(), st.sampled_from(["float32", "bf16"]))  # fmt: skip
def test_updates_of_segments_have_the_bits_of_updates_of_sums(grid, sizes, bucket_bytes, in_legs, values):
    """Each host takes what each host has noted beside its weights."""
    rows, sizes = [2] * grid.hosts, [4 * one for one in sizes]  # so that variables lie as they do without alignment
    plain, updated = (sums_on(grid, sizes, rows, bucket_bytes, in_legs=in_legs, values=values, updated=one) for one in (False, True))  # fmt: skip
    layout = GradientBuckets.of(sizes, grid.hosts, bucket_bytes, aligned=4, grid=grid if in_legs else None)
    for one, other in zip(plain, updated, strict=True):
        for step in range(2):
            assert other.found[step][0].tobytes() == (one.found[step][0] * np.float32(2)).tobytes()
        last = other.found[-1][0]
        for number, bucket in enumerate(layout.buckets):
            for rank, (start, stop) in enumerate(bucket.segments):
                np.testing.assert_array_equal(other.taken[number, rank], last[start:stop].view(np.uint8)[::4])
        assert last.tobytes() == updated[0].found[-1][0].tobytes()


def rounded(floats):
    found = np.empty_like(floats)
    bfloat16.decode(bfloat16.encode(floats), found)
    return found


@settings(max_examples=scaled(25))
@given(GRIDS, st.lists(st.integers(1, 300), min_size=1, max_size=4), st.integers(4, 1500), st.booleans(), st.data())
def test_rounded_parts_are_added_in_float32(grid, sizes, bucket_bytes, in_legs, data):
    """Flat, the gradients of hosts are rounded; in two legs the sums of machines; then the sum. All hosts have equal bits."""
    rows = data.draw(st.lists(st.integers(0, 9), min_size=grid.hosts, max_size=grid.hosts))
    for one in sums_on(grid, sizes, rows, bucket_bytes, in_legs=in_legs, values="bf16"):
        for step, (total, _) in enumerate(one.found):
            vectors = [vector_of(r, step, sum(sizes)) for r in range(grid.hosts)]
            if in_legs:
                parts = [rounded(part) for part in in_order_of_machines(grid, vectors, rows)]
            else:
                shares = [np.float32(r / max(sum(rows), 1)) for r in rows]
                parts = [rounded(vector) * share for vector, share in zip(vectors, shares, strict=True)]
            assert total.tobytes() == rounded(added(parts)).tobytes()


@given(GRIDS, st.lists(st.integers(0, 999), min_size=1, max_size=5), st.integers(64, 3000), st.sampled_from([1, 16]))
def test_segments_divide_the_columns_of_a_bucket(grid, sizes, bucket_bytes, aligned):
    layout = GradientBuckets.of(sizes, grid.hosts, bucket_bytes, aligned=aligned, grid=grid)
    for bucket in layout.buckets:
        assert not bucket.is_whole
        assert [bucket.start, *(stop for _, stop in bucket.columns)] == [*(start for start, _ in bucket.columns), bucket.stop]  # fmt: skip
        for place, (start, stop) in enumerate(bucket.columns):
            own = [bucket.segments[rank] for rank in grid.far_of(place)]
            assert [start, *(one[1] for one in own)] == [*(one[0] for one in own), stop]
            assert all(one % aligned == 0 for one, _ in own)


def test_a_grid_is_needed():
    with pytest.raises(ConfigError, match="buckets of a grid"):
        GridAllReduce(GradientBuckets.of([4], 4), SimpleNamespace(hosts=4), None)


@pytest.mark.parametrize(
    ("lengths", "joined"),
    [
        (np.array([1, 2]), np.zeros(2, np.uint8)),
        (np.array([1]), np.zeros(1, np.uint8)),
        (np.array([3, -1]), np.zeros(2, np.uint8)),
        (np.array([1, 1], np.int32), np.zeros(2, np.uint8)),
        (np.array([1, 1]), np.zeros(2, np.float32)),
        (np.array([2**62, 2**62]), np.zeros(0, np.uint8)),
    ],
)
def test_notes_of_other_lengths_are_refused(lengths, joined):
    with pytest.raises(DataError, match="notes of a column") as caught:
        split_notes(3, [lengths, joined], 2)
    assert caught.value.where == "host of rank 3"


def test_notes_are_bytes():
    with pytest.raises(DataError, match="notes of a segment must be bytes"):
        bytes_of(1, np.zeros(2, np.float32))
