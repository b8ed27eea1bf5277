"""Batches of streams: those that training makes, each event once, in any number of shares."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.late_log import Log
from tests.trainer.run.loading.streams import LogStream
from trainer.errors import BadLabel, ConfigError
from trainer.job.host.shared_batches import SharedBatches
from trainer.model.inputs import lay_out
from trainer.run.loading.batch_order import counts_before, in_lanes
from trainer.run.loading.fragment_pool import FragmentPool
from trainer.run.loading.options import ReadAhead, Share, StreamOptions
from trainer.run.preparation.due_places import DuePlaces
from trainer.run.reading.batches import BatchAssembler, make_batches
from trainer.run.reading.shuffling import ShuffleWindow
from trainer.run.reading.stream import FragmentRef, fragment_stream
from trainer.scheduling.batch_parts import BatchParts


def partial_log() -> Log:
    """Labels that have not come, and deleted events."""
    log = Log(3, 100)
    log.hide("hour=00/1.parquet", range(0, 117, 5))
    log.hide("hour=02/0.parquet", range(40))
    log.retract("hour=01/0.parquet", range(10, 60, 3), "some")
    return log


def refs_of(log: Log, partition: int) -> list[FragmentRef]:
    part = log.solution.partitions[partition]
    return [FragmentRef(part.key, k, one) for k, one in enumerate(part.fragments)]


def same(first, second) -> bool:
    return (
        first.rows == second.rows
        and np.array_equal(first.ids.ids, second.ids.ids)
        and np.array_equal(first.ids.offsets, second.ids.offsets)
        and np.array_equal(first.dense, second.dense)
        and np.array_equal(first.labels, second.labels)
    )


@pytest.mark.parametrize("per_epoch", [1, 2])
def test_batches_are_those_of_a_training_in_one_process(per_epoch):
    stream = LogStream(partial_log(), partitions_per_epoch=per_epoch)
    found = stream.batches(stream.begin(), pads=True)
    layout = lay_out(stream.begin().plan.identity.typed_inputs, stream.options.config())
    wanted = []
    for first in range(0, 3, per_epoch):
        refs = [ref for hour in range(first, min(first + per_epoch, 3)) for ref in refs_of(stream.log, hour)]
        decoded = fragment_stream(refs, stream.log.read, layout, ahead=1)
        wanted += make_batches(decoded, layout, batch_rows=16)
    assert len(found) == len(wanted) > 30
    assert all(map(same, found, wanted))


def test_shuffled_batches_are_those_of_a_job():
    stream = LogStream(partial_log(), shuffle_events=64, seed=5, partitions_per_epoch=2)
    begin = stream.begin()
    plan, layout = begin.plan, lay_out(begin.plan.identity.typed_inputs, stream.options.config())
    wanted, before = [], 0
    for number, hours in enumerate(((0, 1), (2,))):
        stop = plan.units.due_before(plan.stops[number])
        parts, window = BatchParts(16, 0, 1, before, stop), ShuffleWindow(64, 5, number)
        shared = SharedBatches(plan, DuePlaces(plan, counts_before(plan)), parts, window)
        assembler = BatchAssembler(layout, 16, shared.window(0))
        for ref in (ref for hour in hours for ref in refs_of(stream.log, hour)):
            (decoded,) = fragment_stream([ref], stream.log.read, layout, ahead=1)
            place = next(one.origin for one in plan.units.pieces(0, (0, int(plan.units.row_starts[-1]))) if one.fragment == ref.key)  # fmt: skip
            assembler.add(decoded, 0, place)
        assembler.finish()
        wanted += [assembler.take(shared.rows(k)) for k in range(parts.batches)]
        before = stop
    found = stream.batches(begin, pads=True)
    assert len(found) == len(wanted)
    assert all(map(same, found, wanted))
    plain = LogStream(stream.log, partitions_per_epoch=2)
    assert not all(map(same, found, plain.batches(plain.begin(), pads=True)))


@settings(max_examples=scaled(40))
@given(
    rows=st.integers(1, 50),
    windows=st.integers(0, 4),
    lanes=st.integers(1, 9),
    per_epoch=st.integers(1, 4),
    world=st.integers(1, 4),
    workers=st.integers(1, 3),
    equal=st.booleans(),
)
def test_shares_have_each_event_once(rows, windows, lanes, per_epoch, world, workers, equal):
    """The steps of a rank have the same batches whatever the number of its workers."""
    stream = LogStream(partial_log(), batch_rows=rows, shuffle_events=windows * rows, lanes=lanes, partitions_per_epoch=per_epoch)  # fmt: skip
    begin = stream.begin()
    total: Counter = Counter()
    steps = set()
    for rank in range(world):
        alone = stream.batches(begin, Share(rank, world), equal_steps=equal)
        turns = [stream.batches(begin, Share(rank, world, worker, workers), equal_steps=equal) for worker in range(workers)]  # fmt: skip
        merged = [turns[step % workers][step // workers] for step in range(sum(map(len, turns)))]
        assert len(merged) == len(alone)
        assert all(map(same, merged, alone))
        total += stream.counted(alone)
        steps.add(len(alone))
    assert total == Counter(stream.trainable())
    assert len(steps) == 1 if equal else max(steps) - min(steps) <= 1


def test_a_rank_without_an_event_has_an_empty_batch():
    stream = LogStream(Log(1, 20), batch_rows=40)  # 57 events: two batches
    begin = stream.begin()
    share = Share(2, 3)
    assert stream.batches(begin, share) == []
    (empty,) = stream.batches(begin, share, equal_steps=True)
    assert (empty.rows, empty.dense.shape, empty.ids.offsets.shape) == (0, (0, 2), (2, 1))
    (padded,) = stream.batches(begin, share, equal_steps=True, pads=True)
    assert (padded.rows, padded.dense.shape, padded.ids.offsets.shape) == (0, (40, 2), (2, 41))
    assert not padded.weights.any()


@settings(max_examples=scaled(200))
@given(st.integers(1, 60), st.integers(1, 20))
def test_lanes_take_turns_and_are_contiguous(batches, lanes):
    order = [in_lanes(turn, batches, lanes) for turn in range(batches)]
    assert sorted(order) == list(range(batches))
    count = min(lanes, batches)
    for lane in range(count):
        own = order[lane::count]
        assert own == list(range(own[0], own[0] + len(own)))


def test_as_many_lanes_as_shares_read_fragments_of_their_own():
    log = Log(8, 160)
    reads = []
    for rank in range(4):
        log.reads.clear()
        stream = LogStream(log, lanes=4, partitions_per_epoch=8)
        begin = stream.begin()
        read, log.read = log.read, lambda fragment, read=log.read: (log.reads.append(fragment.path), read(fragment))[1]
        stream.batches(begin, Share(rank, 4))
        log.read = read
        reads.append(list(log.reads))
    assert all(len(own) == len(set(own)) for own in reads), "each fragment is read once"
    assert sum(map(len, reads)) <= 16 + 3, "two ranks share the fragment at the end of a lane"


def test_a_pool_reads_ahead_and_lets_go():
    loaded: list[int] = []

    def load(number: int):
        loaded.append(number)
        return number

    needs = [(0,), (0,), (0, 1), (1,), (2,), (3,), (3, 4)]
    with FragmentPool(load, needs, ReadAhead(fragments=1)) as pool:
        found = []
        for own in pool:
            found.append(tuple(own))
            assert len(pool._held) <= len(own) + 2
    assert found == needs
    assert sorted(loaded) == [0, 1, 2, 3, 4]


def test_an_error_of_reading_is_raised_where_the_fragment_is_needed():
    def load(number: int):
        if number == 2:
            raise ValueError("fragment 2")
        return number

    with FragmentPool(load, [(0,), (1,), (2,), (3,)], ReadAhead(fragments=3)) as pool:
        read = iter(pool)
        assert [tuple(next(read)), tuple(next(read))] == [(0,), (1,)]
        with pytest.raises(ValueError, match="fragment 2"):
            next(read)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"batch_rows": 0}, "batch_rows"),
        ({"batch_rows": True}, "batch_rows"),
        ({"shuffle_events": 5}, "whole batches"),
        ({"shuffle_events": -16}, "shuffle_events"),
        ({"lanes": 0}, "lanes"),
        ({"seed": -1}, "seed"),
        ({"partitions_per_epoch": 0}, "partitions_per_epoch"),
    ],
)
def test_options_out_of_range_are_refused(options, match):
    with pytest.raises(ConfigError, match=match):
        StreamOptions(**{"batch_rows": 16, **options})


@pytest.mark.parametrize("share", [(1, 1), (-1, 2), (0, 0), (0, 1, 2, 2), (0, 1, 0, 0), (0.0, 1)])
def test_shares_that_there_are_not_are_refused(share):
    with pytest.raises(ConfigError, match="must be an integer"):
        Share(*share)


def test_a_range_without_labels_is_refused():
    log = Log(1, 10)
    for path in log.stored:
        log.hide(path, range(100))
    with pytest.raises(BadLabel, match="at least one event"):
        LogStream(log).begin()
