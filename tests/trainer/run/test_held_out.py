from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.thread_channels import on_channels
from trainer.errors import TornCheckpoint
from trainer.model.event_losses import event_losses
from trainer.model.heads import BINARY
from trainer.model.scores import Scores
from trainer.options.config import TrainConfig
from trainer.options.document_field import DocumentField
from trainer.run.progress.epochs import plan_epochs
from trainer.run.progress.held_out import BLOCKS, HeldOut, ScoredPass, split_held_out
from trainer.run.scoring import scored_pass


def scored(passes, losses):
    losses = np.array(losses, np.float64)
    return ScoredPass.of(passes, 3 * passes, Scores(len(losses), 1, 0.5, float(losses.mean()), 1.0), losses)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=12), st.floats(0, 0.99), st.integers(1, 4))
def test_the_held_out_share_is_the_smallest_newest_one_and_all_is_trained_as_often(sizes, share, passes):
    events = {f"day={k:02d}": size for k, size in enumerate(sizes)}
    segments = split_held_out(list(events), events, share)
    assert [key for segment in segments for key in segment] == list(events)
    epochs = plan_epochs(segments, partitions_per_epoch=2, passes=passes)
    assert set(Counter(key for epoch in epochs for key in epoch.partitions).values()) == {passes}
    if len(segments) == 2:
        older, held = segments
        wanted = share * sum(sizes)
        assert sum(events[key] for key in older) > 0
        assert sum(events[key] for key in held[1:]) < wanted
        assert sum(events[key] for key in held) >= wanted or len(older) == 1
        first_held = next(epoch.number for epoch in epochs if epoch.partitions[0] == held[0])
        assert all(set(epoch.partitions) <= set(older) for epoch in epochs[:first_held])


@settings(max_examples=scaled(40))
@given(st.lists(st.integers(0, 150), min_size=1, max_size=4), st.sampled_from(["none", "platt"]), st.integers(0, 99))
def test_hosts_have_the_figures_of_a_pass_of_one_process(sizes, calibration, seed):
    """``sizes``: the events of each host, by rank in time order."""
    source, options = np.random.default_rng(seed), TrainConfig("run", calibration=calibration, passes=2)
    labels = source.integers(0, 2, sum(sizes)).astype(np.float32)
    logits = source.normal(size=sum(sizes)).astype(np.float32)
    alone = scored_pass(1, 3, BINARY, options, labels, logits)
    ends = np.cumsum([0, *sizes])

    def work(channels):
        own = slice(ends[channels.steps.rank], ends[channels.steps.rank + 1])
        return scored_pass(1, 3, BINARY, options, labels[own], logits[own], channels.steps)

    first, *others = on_channels(len(sizes), work)
    assert first == alone
    if alone is None:
        assert others == [None] * len(others)
        return
    assert alone.loss == pytest.approx(event_losses(BINARY, labels, logits).mean(), rel=1e-12)
    blocks = np.array_split(event_losses(BINARY, labels, logits), min(BLOCKS, len(labels)))
    assert alone.block_losses == pytest.approx([one.mean() for one in blocks], rel=1e-12)
    assert [replace(one, calibrations=alone.calibrations) for one in others] == [alone] * len(others)


@pytest.mark.parametrize(
    ("sizes", "share", "held"),
    [
        ([10] * 10, 0.1, 1),
        ([10] * 10, 0.11, 2),
        ([10] * 10, 0.0, 0),
        ([10], 0.1, 0),
        ([10, 100], 0.1, 1),
        ([10, 10, 0], 0.1, 2),
        ([0, 10], 0.1, 0),
        ([0, 0], 0.1, 0),
    ],
)
def test_what_is_held_out(sizes, share, held):
    events = {f"day={k}": size for k, size in enumerate(sizes)}
    segments = split_held_out(list(events), events, share)
    assert (len(segments[1]) if len(segments) > 1 else 0) == held


def test_passes_end_when_the_held_out_loss_rises_by_more_than_its_error():
    draw = np.random.default_rng(0)
    base = draw.random(10_000)
    state = HeldOut().after(scored(1, base), most_passes=4, stops_early=True)
    assert state.stopped == 0
    better = state.after(scored(2, base - 0.01), most_passes=4, stops_early=True)
    assert better.stopped == 0
    worse = base + 0.001
    for losses in (base, worse):
        assert state.after(scored(2, losses), most_passes=4, stops_early=True).stopped == 2
        assert state.after(scored(2, losses), most_passes=4, stops_early=False).stopped == 0
        assert state.after(scored(2, losses), most_passes=2, stops_early=True).stopped == 0, "it was the last one"
    # The difference is in a few events, so its error is larger: nothing is known.
    for sign in (-1, 1):
        few = base.copy()
        few[:40] += 0.2 * sign
        few[5_000:5_040] -= 0.1 * sign
        assert state.after(scored(2, few), most_passes=4, stops_early=True).stopped == 0
    assert better.after(scored(3, worse), most_passes=4, stops_early=True).stopped == 3
    # Without the pass before there is nothing to compare with.
    assert state.after(scored(3, worse), most_passes=4, stops_early=True).stopped == 0


def test_gains_are_paired_by_blocks_of_equal_events():
    draw = np.random.default_rng(1)
    base, falls = 10 * draw.random(6_400), draw.normal(0.01, 0.1, 6_400)
    gain, error = scored(2, base - falls).gain_over(scored(1, base))
    assert gain == pytest.approx(falls.mean())
    assert error == pytest.approx(0.1 / math.sqrt(6_400), rel=0.3)  # not that of the losses, which is 20 times as large
    assert len(scored(1, base).block_losses) == BLOCKS
    assert scored(2, base[1:]).gain_over(scored(1, base))[1] is None
    assert scored(2, base[:1]).gain_over(scored(1, base[:1]))[1] is None


SEGMENTS = (("a",), ("b",))


def test_the_document_round_trips():
    state = HeldOut().after(scored(1, [1.0, 2.0]), most_passes=4, stops_early=True)
    state = state.after(scored(2, [1.0, 2.0]), most_passes=4, stops_early=True)
    assert state.stopped == 2
    document = json.loads(json.dumps(state.to_document()))
    assert HeldOut.read(DocumentField(document, "held_out"), SEGMENTS) == state


def test_a_state_that_no_run_has_is_refused():
    state = HeldOut((scored(1, [1.0]), scored(2, [1.0])), 2).to_document()
    one, two = state["scored"]
    for changed in (
        {**state, "stopped": 1},
        {**state, "stopped": 256},
        {**state, "scored": []},
        {**state, "scored": [two, one]},
        {**state, "scored": [one, one], "stopped": 1},
        {**state, "scored": [{**one, "passes": 0}], "stopped": 0},
        {**state, "scored": [one, {**two, "loss": float("inf")}]},
        {**state, "scored": [one, {**two, "block_losses": 3}]},
    ):
        with pytest.raises(TornCheckpoint):
            HeldOut.read(DocumentField(changed, "held_out"), SEGMENTS)
    with pytest.raises(TornCheckpoint, match="second segment"):
        HeldOut.read(DocumentField(state, "held_out"), SEGMENTS[:1])
