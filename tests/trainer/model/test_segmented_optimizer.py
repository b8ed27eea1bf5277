"""Updates of segments of the weights give the bits of an update of all weights, and the slots of all segments are those of all weights."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

from tests.support.examples import scaled  # noqa: E402
from tests.trainer.synthetic import config  # noqa: E402
from trainer.job.host.dense.gradient_buckets import GradientBuckets  # noqa: E402
from trainer.model.optimizers.dense_optimizer import DenseOptimizer  # noqa: E402
from trainer.model.optimizers.optimizer_slots import SLOTS  # noqa: E402
from trainer.model.optimizers.segmented_optimizer import SegmentedOptimizer, borrowed  # noqa: E402
from trainer.model.optimizers.segments import ALIGNED_FLOATS, BY_ELEMENT, aligned_zeros, offsets_of, pieces_of  # noqa: E402


def variables(shapes, seed):
    source = np.random.default_rng(seed)
    return [keras.Variable(source.standard_normal(shape).astype(np.float32)) for shape in shapes]


def gradients_of(shapes, seed, step):
    """Floats of many magnitudes: also zeros, and floats that are subnormal, or whose squares are."""
    source = np.random.default_rng((seed, step))
    size = sum(int(np.prod(shape)) for shape in shapes)
    found = source.standard_normal(size) * 10.0 ** source.integers(-44, 4, size)
    return np.where(source.random(size) < 0.1, 0, found).astype(np.float32)


def split(flat, shapes):
    sizes = [int(np.prod(shape)) for shape in shapes]
    return [part.reshape(shape) for part, shape in zip(np.split(flat, np.cumsum(sizes)[:-1]), shapes, strict=True)]


def flat(arrays):
    return np.concatenate([np.ravel(one) for one in arrays])


class Hosts:
    """Some hosts that update their segments of weights, each in variables of its own."""

    def __init__(self, kind, shapes, hosts, bucket_bytes, seed):
        sizes = [int(np.prod(shape)) for shape in shapes]
        self.layout = GradientBuckets.of(sizes, hosts, bucket_bytes, aligned=ALIGNED_FLOATS)
        self.weights = [variables(shapes, seed) for _ in range(hosts)]
        self.optimizers = []
        for rank, weights in enumerate(self.weights):
            whole = DenseOptimizer(config("run", dense_optimizer=kind), weights)
            segments = [one.segments[rank] for one in self.layout.buckets]
            self.optimizers.append(SegmentedOptimizer(kind, whole, weights, whole.slots, segments))

    def step(self, gradients, shapes, rate):
        """One update by gradients that are equal on all hosts."""
        after = self.vector_of(gradients, shapes)
        for optimizer in self.optimizers:
            optimizer.rate.assign(rate)
            optimizer.begin()
        for number, bucket in enumerate(self.layout.buckets):
            for (start, stop), optimizer in zip(bucket.segments, self.optimizers, strict=True):
                optimizer.update(number, after[start:stop])
        for weights, optimizer in zip(self.weights, self.optimizers, strict=True):
            for variable, at, size in zip(weights, self.layout.offsets, self.layout.sizes, strict=True):
                variable.assign(after[at : at + size].reshape(variable.shape))
            optimizer.updates.assign_add(1)

    def vector_of(self, gradients, shapes):
        """The gradients at the places of the vector."""
        found = aligned_zeros(self.layout.size)
        for part, at in zip(split(gradients, shapes), self.layout.offsets, strict=True):
            found[at : at + part.size] = part.reshape(-1)
        return found

    def arrays(self):
        """The state of the optimizer of each host, with the slots of all."""
        whole = [np.zeros(self.layout.size, np.float32) for _ in range(len(self.optimizers[0].kinds()))]
        for number, bucket in enumerate(self.layout.buckets):
            for (start, stop), optimizer in zip(bucket.segments, self.optimizers, strict=True):
                for vector, part in zip(whole, optimizer.segment_slots(number), strict=False):
                    vector[start:stop] = part
        for optimizer in self.optimizers:
            optimizer.take_slots(whole)
        return [one.arrays() for one in self.optimizers]


shapes = st.one_of(st.tuples(st.integers(1, 700)), st.tuples(st.integers(0, 40), st.integers(1, 40)))


@settings(max_examples=scaled(25))
@given(
    st.sampled_from(sorted(BY_ELEMENT)),
    st.lists(shapes, min_size=1, max_size=4).filter(lambda found: sum(int(np.prod(one)) for one in found)),
    st.integers(2, 5),
    st.integers(4, 6000),
    st.integers(0, 2**20),
)
@pytest.mark.medium
def test_segments_have_the_bits_of_whole_weights(kind, shapes, hosts, bucket_bytes, seed):
    whole = variables(shapes, seed)
    optimizer = DenseOptimizer(config("run", dense_optimizer=kind), whole)
    update = tf.function(lambda gradients: optimizer.apply(gradients, whole), autograph=False)
    own = Hosts(kind, shapes, hosts, bucket_bytes, seed)
    for arrays in own.arrays():
        assert_equal(arrays, optimizer.arrays())
    for step, rate in enumerate((0.01, 0.003, 0.003)):
        gradients = gradients_of(shapes, seed, step)
        optimizer.rate.assign(rate)
        update([tf.constant(part) for part in split(gradients, shapes)])
        own.step(gradients, shapes, rate)
        for weights in own.weights:
            assert flat(weights).tobytes() == flat(whole).tobytes()
    for arrays in own.arrays():
        assert_equal(arrays, optimizer.arrays())
    again = Hosts(kind, shapes, hosts + 1, bucket_bytes, seed)  # what was saved fits any number of hosts
    for weights, segmented in zip(again.weights, again.optimizers, strict=True):
        for variable, part in zip(weights, whole, strict=True):
            variable.assign(part)
        segmented.load(optimizer.arrays())
    for arrays in again.arrays():
        assert_equal(arrays, optimizer.arrays())
    gradients = gradients_of(shapes, seed, 9)
    for one in (own, again):
        one.step(gradients, shapes, 0.02)
    assert flat(own.weights[0]).tobytes() == flat(again.weights[0]).tobytes()


def assert_equal(arrays, expected):
    assert [one.shape for one in arrays] == [one.shape for one in expected]
    assert [one.tobytes() for one in arrays] == [one.tobytes() for one in expected]


@settings(max_examples=scaled(100))
@given(st.lists(st.integers(0, 50), min_size=1, max_size=6), st.data())
def test_the_pieces_of_a_segment_are_its_floats(sizes, data):
    *offsets, total = offsets_of(sizes)
    start = data.draw(st.integers(0, total))
    stop = data.draw(st.integers(start, total))
    weights = [np.arange(at, at + size) for at, size in zip(offsets, sizes, strict=True)]
    found = np.full(stop - start, -1)
    for piece in pieces_of(sizes, (start, stop)):
        found[piece.of_segment] = weights[piece.place][piece.of_weight]
    of_weights = {one for weight in weights for one in weight.tolist()}
    assert found.tolist() == [one if one in of_weights else -1 for one in range(start, stop)]


def test_each_host_has_its_share_of_the_slots_alone():
    sizes, hosts = [(300, 64), (1000,), (64, 64)], 4
    for kind in sorted(BY_ELEMENT):
        whole = DenseOptimizer(config("run", dense_optimizer=kind), weights := variables(sizes, 0))
        released = [weakref.ref(slot.value) for slots in whole.slots for slot in slots]
        layout = GradientBuckets.of([int(np.prod(one)) for one in sizes], hosts, 4 << 10, aligned=ALIGNED_FLOATS)
        segments = [one.segments[1] for one in layout.buckets]
        found = SegmentedOptimizer(kind, whole, weights, whole.slots, segments)
        all_bytes = 4 * layout.size * len(SLOTS[kind])
        assert found.slot_bytes == pytest.approx(all_bytes / hosts, rel=0.1)
        del whole
        gc.collect()
        assert [one() for one in released] == [None] * len(released)


def test_a_tensor_has_the_memory_of_an_aligned_array_alone():
    array = aligned_zeros(1000)
    tensor = borrowed(array[64:128].reshape(8, 8))
    array[64] = 3.0
    assert float(tensor[0, 0]) == 3.0
    with pytest.raises(AssertionError, match="ends the process"):
        borrowed(array[1:65])


def test_slots_are_gathered_before_they_are_read():
    hosts = Hosts("adam", [(100,)], 2, 4096, 0)
    assert [one.shape for one in hosts.optimizers[0].arrays()][2:] == [(100,), (100,)]
    hosts.step(np.ones(100, np.float32), [(100,)], 0.1)
    with pytest.raises(AssertionError, match="gathered"):
        hosts.optimizers[0].arrays()
