"""States of streams: any number of ranks and workers goes on from them, and each event is handed out once."""

from __future__ import annotations

import base64
import copy
import json
import random
import zlib
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.mutations import mutated
from tests.support.examples import scaled
from tests.trainer.late_log import Log
from tests.trainer.run.loading.streams import LogStream
from tests.trainer.run.loading.test_stream import partial_log, same
from trainer.errors import RunMismatch
from trainer.run.loading.beginning import beginning_of_share, check_continued
from trainer.run.loading.options import Share
from trainer.run.loading.state import StreamState, merge_states, next_batch, states_in
from transforms.errors import DataError, HeadraceError, InputError


def run(stream, begin, world, workers, steps_of):
    """Each share makes its steps; returns the batches and the states."""
    batches, states = [], []
    for rank in range(world):
        for worker in range(workers):
            share = Share(rank, world, worker, workers)
            own = stream.batches(begin, share, steps=steps_of(share))
            batches += own
            states.append(stream.state(begin, share, len(own)))
    return batches, states


def change(log: Log, kind: str, number: int) -> None:
    """Something that happens to a log while loaders are down."""
    if kind == "rows":
        log.append(number % 3, 30 + number, seed=700 + number)
    elif kind == "labels":
        path = "hour=00/1.parquet"
        log.label(path, [one if one is not None else 1 for one in log.stored[path]["__label__"].to_pylist()], f"come {number}")  # fmt: skip
    elif kind == "deleted":
        log.retract("hour=01/1.parquet", range(number, number + 40), f"deleted {number}")


@settings(max_examples=scaled(25))
@given(st.data())
def test_each_event_is_handed_out_once_over_restarts(data):
    """Each life has other ranks, workers, batches and windows; shares stop anywhere, and data comes and goes in between."""
    log = partial_log()
    handed: Counter = Counter()
    begin = None
    states: list[dict] = []
    gone: set = set()
    for life in range(data.draw(st.integers(1, 4), label="lives")):
        rows = data.draw(st.sampled_from([7, 16, 33]), label="batch_rows")
        stream = LogStream(
            log, batch_rows=rows, shuffle_events=rows * data.draw(st.sampled_from([0, 3])), lanes=data.draw(st.sampled_from([1, 4])),
            partitions_per_epoch=data.draw(st.sampled_from([1, 3])),
        )  # fmt: skip
        begin = stream.after(states) if states else stream.begin()
        world, workers = data.draw(st.integers(1, 3), label="world"), data.draw(st.integers(1, 2), label="workers")
        batches, states = run(stream, begin, world, workers, lambda _: data.draw(st.integers(0, 9), label="steps"))
        handed += stream.counted(batches)
        before = stream.trainable()
        change(log, data.draw(st.sampled_from(["none", "rows", "labels", "deleted"]), label="change"), life)
        gone |= before - stream.trainable()
    stream = LogStream(log)
    last = stream.after(states)
    handed += stream.counted(stream.batches(last))
    assert max(handed.values()) == 1
    wanted = stream.trainable()
    assert wanted <= handed.keys() <= wanted | gone


@pytest.mark.parametrize("windows", [0, 4])
@pytest.mark.parametrize(("before", "after"), [((1, 1), (3, 2)), ((2, 2), (1, 1)), ((3, 1), (2, 3))])
def test_batches_stay_the_same_for_other_ranks_and_workers(windows, before, after):
    """If all ranks made equally many steps, windows and batches go on where they were."""
    stream = LogStream(partial_log(), shuffle_events=16 * windows, lanes=2)
    begin = stream.begin()
    whole = stream.batches(begin)
    world, workers = before
    steps = 3
    batches, states = run(stream, begin, world, workers, lambda share: -(-(steps - share.worker) // share.workers))
    assert len(batches) == steps * world
    again = stream.after(states)
    assert (again.first, again.content) == (steps * world, begin.content)
    world, workers = after
    rest = {}
    for rank in range(world):
        for worker in range(workers):
            share = Share(rank, world, worker, workers)
            for step, batch in enumerate(stream.batches(again, share)):
                rest[again.first + share.batch(step)] = batch
    assert sorted(rest) == list(range(again.first, len(whole)))
    assert all(same(batch, whole[number]) for number, batch in rest.items())


def test_one_share_goes_on_by_its_own_state():
    stream = LogStream(partial_log(), shuffle_events=64)
    begin, share = stream.begin(), Share(1, 2, 0, 2)
    whole = stream.batches(begin, share)
    (state,) = states_in(stream.state(begin, share, 2))
    again = beginning_of_share(state)
    rest = stream.batches(again, again.share, done=again.steps)
    assert len(rest) == len(whole) - 2
    assert all(map(same, rest, whole[2:]))


def test_a_share_does_not_go_on_with_other_data_or_options():
    stream = LogStream(partial_log())
    begin = stream.begin()
    other = LogStream(stream.log, batch_rows=8, shuffle_events=16)
    with pytest.raises(RunMismatch, match="batch_rows, shuffle_events"):
        check_continued(begin, 1, stream.log.solution, other.options)
    stream.log.append(0, 10, seed=3)
    with pytest.raises(RunMismatch, match="the data of events"):
        check_continued(begin, 1, stream.log.solution, stream.options)


def test_changed_values_of_events_that_were_handed_out_are_refused():
    stream = LogStream(partial_log())
    begin = stream.begin()
    batches, states = run(stream, begin, 1, 1, lambda _: 3)
    assert batches
    path = "hour=00/0.parquet"
    stream.log._redigest(path, "user", "changed")
    with pytest.raises(RunMismatch, match="handed out must not change"):
        stream.after(states)
    untouched = LogStream(partial_log())
    untouched.log._redigest("hour=02/1.parquet", "user", "changed")
    untouched.after(states)  # none of its events was handed out


def test_states_of_several_streams_are_refused():
    stream = LogStream(partial_log())
    begin = stream.begin()
    first, second = (stream.state(begin, Share(rank, 2), 2) for rank in range(2))
    for name, value in (("world", 3), ("lanes", 2), ("first", 1), ("model", "other")):
        with pytest.raises(InputError, match="must belong to one stream"):
            merge_states(states_in([first, {**second, name: value}]))
    stream.log.append(0, 10, seed=3)
    other = stream.state(stream.begin(), Share(1, 2), 2)
    with pytest.raises(InputError, match="several plans"):
        merge_states(states_in([first, other]))
    with pytest.raises(InputError, match="one state"):
        merge_states(states_in([first, {**first, "steps": 3}]))
    assert merge_states(states_in([first, second, first])).is_whole
    assert not merge_states(states_in([first])).is_whole


def test_a_state_is_found_in_that_of_a_data_loader():
    stream = LogStream(partial_log())
    state = stream.state(stream.begin(), Share(), 2)
    held = {"_snapshot": {"_snapshot_step": 2, "_worker_snapshots": {"worker_0": {"dataset_state": state}}}, "_steps_since_snapshot": 0}  # fmt: skip
    assert [one.steps for one in states_in([held])] == [2]
    for nothing in ({}, [], None, 7, "state", {"a": [1, {}]}):
        with pytest.raises(DataError, match="must hold the state"):
            states_in(nothing)
    with pytest.raises(DataError, match="since its snapshot"):
        states_in({**held, "_steps_since_snapshot": 1})
    deep: object = state
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(DataError):
        states_in(deep)


def test_a_finished_stream_leaves_nothing():
    stream = LogStream(partial_log())
    begin = stream.begin()
    _, states = run(stream, begin, 2, 1, lambda _: 1000)
    assert stream.batches(stream.after(states)) == []
    stream.log.append(2, 50, seed=9)
    late = stream.after(states)
    assert stream.counted(stream.batches(late)).keys() == {("hour=02/late-9.parquet", row) for row in range(50)}


def test_a_finished_stream_of_equal_steps_leaves_nothing():
    stream = LogStream(Log(1, 20), batch_rows=40)
    begin = stream.begin()
    states = [stream.state(begin, Share(rank, 3), 1) for rank in range(3)]
    assert stream.batches(stream.after(states)) == []


def test_a_state_is_json_of_plain_values():
    stream = LogStream(partial_log())
    state = stream.state(stream.begin(), Share(), 2)
    assert json.loads(json.dumps(state)) == state
    assert all(type(value) in (str, int) for value in state.values())


def _outcome(stream, document):
    """What loading a document does; errors are those of Headrace alone."""
    try:
        states = states_in(document)
        merged = merge_states(states)
        begin = stream.after([document]) if merged.is_whole else beginning_of_share(states[0])
        stream.batches(begin, begin.share or Share(), done=begin.steps)
        next_batch(merged)
    except HeadraceError:
        return False
    return True


@pytest.mark.medium
def test_damaged_states_are_refused_or_read():
    stream = LogStream(partial_log())
    begin = stream.begin()
    _, states = run(stream, begin, 1, 2, lambda _: 2)
    draws = random.Random(11)
    outcomes = Counter(_outcome(stream, mutated(copy.deepcopy(states), draws)) for _ in range(scaled(600)))
    assert outcomes[False] > 0


@pytest.mark.medium
def test_damaged_plans_are_refused_or_read():
    """The plan inside a state is damaged, and packed again."""
    stream = LogStream(partial_log(), shuffle_events=32)
    begin = stream.begin()
    state = StreamState.read(stream.state(begin, Share(), 2))
    plan = json.loads(begin.content)
    draws = random.Random(12)
    outcomes: Counter = Counter()
    for _ in range(scaled(600)):
        content = json.dumps(mutated(plan, draws)).encode("utf-8", "surrogatepass")
        document = {**state.to_document(), "plan": StreamState(**{**vars(state), "plan": content}).to_document()["plan"]}  # fmt: skip
        outcomes[_outcome(stream, document)] += 1
    assert outcomes[False] > 0


def test_a_packed_plan_of_many_bytes_is_refused():
    stream = LogStream(partial_log())
    state = stream.state(stream.begin(), Share(), 2)
    bomb = base64.b64encode(zlib.compress(np.zeros(1 << 29, np.uint8).tobytes(), 1)).decode()
    with pytest.raises(DataError, match="at most"):
        StreamState.read({**state, "plan": bomb})
