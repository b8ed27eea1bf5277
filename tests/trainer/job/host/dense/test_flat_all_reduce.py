"""The sum of dense gradients in buckets: equal to the sum in the order of ranks bit for bit, with fewer bytes, whatever the timing."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.support.whole_vectors import summed
from tests.support.examples import scaled
from tests.support.processes import PATIENCE_SECS
from tests.trainer.thread_channels import on_channels
from trainer.errors import AttemptOver
from trainer.job.host.dense import gradient_buckets
from trainer.job.host.dense.flat_all_reduce import FlatAllReduce
from trainer.job.host.dense.gradient_buckets import GradientBuckets
from transforms.errors import DataError


def vector_of(rank, step, size):
    """Floats of many magnitudes, whose sum depends on the order."""
    rng = np.random.default_rng((rank, step))
    return (rng.standard_normal(size) * 10.0 ** rng.integers(-6, 6, size)).astype(np.float32)


def reference(vectors, rows):
    """The sum as the hosts had it before: whole vectors, scaled by their share and added in the order of ranks."""
    shares = [np.float32(one / max(sum(rows), 1)) for one in rows]
    total = np.array(vectors[0] * shares[0], np.float32)
    for vector, share in zip(vectors[1:], shares[1:], strict=True):
        total += vector * share
    return total


def sums_on(hosts, sizes, rows, bucket_bytes, *, steps=2, in_groups=True, delays=0.0):
    """By host: the sums of each step, the shares, and the bytes that it sent."""
    layout = GradientBuckets.of(sizes, hosts, bucket_bytes)

    def work(channels):
        rank, found = channels.shares.rank, []
        reduce = FlatAllReduce(layout, channels.shares, channels.sums)
        for step in range(steps):
            vector = vector_of(rank, step, layout.size)
            reduce.begin(rows[rank])
            if in_groups:
                for number, group in enumerate(layout.groups):
                    parts = [vector[layout.offsets[place] :][: sizes[place]].reshape(-1, 1) for place in group]
                    reduce.put(number, parts)
            else:
                reduce.put_all(vector)
            total = reduce.finish()
            found.append((total.vector.copy(), total.share))
        return found, channels.shares.sent_bytes + channels.sums.sent_bytes

    return on_channels(hosts, work, delays=delays)


@settings(max_examples=scaled(60))
@given(
    st.integers(1, 5),
    st.lists(st.integers(0, 700), max_size=6),
    st.integers(4, 3000),
    st.integers(0, 4000),
    st.booleans(),
    st.data(),
)
def test_the_sum_is_that_in_the_order_of_ranks(hosts, sizes, bucket_bytes, one_round_bytes, in_groups, data):
    rows = data.draw(st.lists(st.integers(0, 9), min_size=hosts, max_size=hosts))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gradient_buckets, "ONE_ROUND_BYTES", one_round_bytes)
        results = sums_on(hosts, sizes, rows, bucket_bytes, in_groups=in_groups)
    for rank, (found, _) in enumerate(results):
        for step, (total, share) in enumerate(found):
            expected = reference([vector_of(r, step, sum(sizes)) for r in range(hosts)], rows)
            assert total.tobytes() == expected.tobytes()
            assert share == np.float32(rows[rank] / max(sum(rows), 1))


def test_it_is_the_sum_of_gathered_vectors():
    """The function that added whole vectors gives the same bits."""
    rows, size = (4, 0, 3), 5000
    shares = [np.float32(one / 7) for one in rows]

    def gathered(channels):
        rank = channels.shares.rank
        return summed(channels.steps, vector_of(rank, 0, size) * shares[rank])

    expected = on_channels(3, gathered)
    for rank, (found, _) in enumerate(sums_on(3, [size], rows, 1024)):
        assert found[0][0].tobytes() == expected[rank].tobytes() == expected[0].tobytes()


def test_timing_changes_no_bit():
    sizes, rows = [300] * 8, (3, 2, 4)
    straight, delayed = (sums_on(3, sizes, rows, 1000, delays=delays) for delays in (0.0, 0.004))
    for (one, _), (other, _) in zip(straight, delayed, strict=True):
        assert [total.tobytes() for total, _ in one] == [total.tobytes() for total, _ in other]


@pytest.mark.parametrize("hosts", [2, 3, 4, 6])
def test_a_host_sends_each_float_to_one_host_and_its_sum_to_all(hosts, monkeypatch):
    monkeypatch.setattr(gradient_buckets, "ONE_ROUND_BYTES", 0)
    floats, steps = 12_000, 3
    results = sums_on(hosts, [floats], [1] * hosts, 4_800, steps=steps)
    counts = 8 * (hosts - 1)  # the number of events, with the first bucket
    whole = 4 * floats * (hosts - 1) + counts
    halves = 2 * 4 * floats * (hosts - 1) // hosts + counts
    assert [sent for _, sent in results] == [steps * halves] * hosts
    assert halves <= whole, "two hosts send the same bytes, more hosts fewer"


@pytest.mark.parametrize("buckets", [1, 8])
def test_a_step_that_is_given_up_leaves_no_thread_behind(buckets):
    layout = GradientBuckets.of([100] * 8, 2, 3200 // buckets)
    closed = threading.Event()

    class Closing:
        rank, hosts = 0, 2

        def send(self, parts):
            if closed.is_set():
                raise AttemptOver("closed")

        def receive(self):
            assert closed.wait(PATIENCE_SECS)
            raise AttemptOver("closed")

    reduce = FlatAllReduce(layout, Closing(), Closing())
    reduce.abandon()  # nothing was begun
    reduce.begin(3)
    reduce.put(0, [np.zeros(100, np.float32)] * len(layout.groups[0]))
    closed.set()
    reduce.abandon()
    assert all(one.done() for one in reduce._running)
    assert len(reduce._running) == (3 if buckets > 1 else 0)


@pytest.mark.parametrize(
    "arrays",
    [
        [],
        [np.zeros(4, np.float32)],
        [np.array([3]), np.zeros(1, np.float32)],  # would be broadcast
        [np.array([3]), np.zeros(5, np.float32)],
        [np.array([3]), np.zeros(4, np.int32)],
        [np.array([3, 3]), np.zeros(4, np.float32)],
        [np.array([-3]), np.zeros(4, np.float32)],
        [np.zeros(1, np.float32), np.zeros(4, np.float32)],
        [np.array([3]), np.zeros(4, np.float32), np.zeros(4, np.float32)],
    ],
)
def test_messages_of_other_shapes_are_refused(arrays):
    class Odd:
        rank, hosts = 0, 2

        def send(self, parts):
            self.own = parts[0]

        def receive(self):
            return [self.own, arrays]

    reduce = FlatAllReduce(GradientBuckets.of([4], 2), Odd(), Odd())
    reduce.begin(1)
    reduce.put_all(np.ones(4, np.float32))
    with pytest.raises(DataError, match="gradients") as caught:
        reduce.finish()
    assert caught.value.where == "host of rank 1"


def test_an_error_of_the_exchange_is_raised():
    layout = GradientBuckets.of([100] * 8, 2, 400)

    class Lost:
        rank, hosts = 0, 2

        def send(self, parts):
            raise OSError("lost")

        def receive(self):
            raise OSError("lost")

    reduce = FlatAllReduce(layout, Lost(), Lost())
    reduce.begin(1)
    reduce.put_all(np.zeros(800, np.float32))
    with pytest.raises(OSError, match="lost"):
        reduce.finish()
    reduce.abandon()
