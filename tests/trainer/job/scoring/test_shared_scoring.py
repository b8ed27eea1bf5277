"""Hosts that score together have the predictions of one process, bit for bit, whatever the model's tables are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tests.trainer.synthetic import Synthetic, config
from tests.trainer.thread_channels import on_channels
from trainer.errors import RunMismatch
from trainer.job.scoring.shared_scoring import ScoringChannels, _Gathered, _named_events, score_together
from trainer.model.heads import BINARY
from trainer.run.loop import train
from trainer.serving.scored_events import score_events
from trainer.serving.trained import load_trained
from transforms.errors import DataError, NotFound

pytest.importorskip("tensorflow")

HASHED = {"words": {"capacity": 60, "admit_after": 2}, "user": {"capacity": 40}}
KINDS = {
    "plain": {},
    "linear alone": {"deep": False, "linear": True},
    "hashed": {"hashed": HASHED},
    "pruned": {"pruning": {"budget": 0.3, "round_steps": 3}},
    "both": {"hashed": {"words": HASHED["words"]}, "pruning": {"budget": 0.3, "round_steps": 3}},
    "towers": {"tower_modules": {"towers": [["words"], ["user"]], "compression": 2}},
    "calibrated": {"passes": 2, "calibration": "platt", "held_out_share": 0.2},
}


def newer_events(*, are_labelled):
    """Newer events, of which some may have no label."""
    data = Synthetic(2, 150, first=4)
    if are_labelled:
        return data
    for number, (path, table) in enumerate(data.tables.items()):
        labels = table.column("__label__").to_pylist()
        labels[number::7] = [None] * len(labels[number::7])
        at = table.column_names.index("__label__")
        data.tables[path] = table.set_column(at, "__label__", pa.array(labels, pa.int64()))
    return data


def score(run, data, hosts, solution=None, on_progress=None):
    """``on_progress``: called with each progress of the first host."""

    def work(channels):
        shared = ScoringChannels(channels.tables, channels.steps)
        rank = channels.steps.rank
        options = {} if on_progress is None or rank else {"progress": on_progress}
        return score_together(str(run), (solution or (lambda rank: data.solution))(rank), data.read, shared, **options)

    return on_channels(hosts, work)


@pytest.mark.medium
@pytest.mark.parametrize(("kind", "are_labelled"), [*((one, True) for one in sorted(KINDS)), ("plain", False), ("calibrated", False)])  # fmt: skip
def test_hosts_have_the_predictions_of_one_process(kind, are_labelled, tmp_path):
    data, options = Synthetic(2, 200), {"linear": True, **KINDS[kind]}
    train(data.solution, data.read, config(tmp_path, batch_rows=32, dim=4, bottom_mlp=(8,), top_mlp=(8,), **options))
    newer = newer_events(are_labelled=are_labelled)
    alone = score_events(load_trained(str(tmp_path)), newer.solution, newer.read)
    for hosts in (2, 3):
        first, *others = score(tmp_path, newer, hosts)
        assert [one.events for one in others] == [None] * (hosts - 1)
        assert sum(one.own_events for one in (first, *others)) == len(alone.labels)
        assert first.events.labels.tobytes() == alone.labels.tobytes()
        np.testing.assert_allclose(first.events.logits, alone.logits, rtol=1e-5, atol=1e-6)
        if are_labelled:
            assert first.events.logits.tobytes() == alone.logits.tobytes()
            assert first.events.positions == (None,) * 4
        else:
            assert [one.tolist() for one in first.events.positions] == [one.tolist() for one in alone.positions]
        stored = [{name: len(one) for name, one in host.saved.arrays.items() if "/rows/" in name} for host in (first, *others)]  # fmt: skip
        whole = {name: len(one) for name, one in load_trained_arrays(tmp_path).items() if "/rows/" in name}
        assert {name: sum(one[name] for one in stored) for name in whole} == whole, "each row is on one host"


def load_trained_arrays(run):
    from trainer.run.weights.saved_run import read_newest_run

    return read_newest_run(str(run), on_skip=lambda reason: None).arrays


@pytest.mark.medium
def test_more_hosts_than_events_score_all_of_them(tmp_path):
    data = Synthetic(1, 60)
    train(data.solution, data.read, config(tmp_path, batch_rows=32, dim=4))
    few = Synthetic(1, 2, first=4)
    shown = []
    found = score(tmp_path, few, 4, on_progress=lambda *given: shown.append(given))
    events = sum(one.num_rows for one in few.tables.values())
    assert shown == [(0, events)]
    assert [one.own_events for one in found] == [0, 0, 0, events]
    assert len(found[0].events.labels) == events < 32


@pytest.mark.medium
def test_the_progress_counts_the_events_of_all_hosts(tmp_path):
    data = Synthetic(1, 60)
    train(data.solution, data.read, config(tmp_path, batch_rows=16, deep=False, linear=True))
    newer, shown = Synthetic(1, 60, first=4), []
    score(tmp_path, newer, 2, on_progress=lambda *given: shown.append(given))
    stored = sum(one.num_rows for one in newer.tables.values())
    steps = -(-stored // 32)
    assert shown == [(32 * step, stored) for step in range(steps)], (
        "those of the batches before the ones that are scored"
    )


@pytest.mark.medium
def test_hosts_with_other_events_are_refused(tmp_path):
    data = Synthetic(1, 60)
    train(data.solution, data.read, config(tmp_path, batch_rows=32, dim=4))
    others = [Synthetic(1, 40, first=4), Synthetic(1, 40, first=5)]
    with pytest.raises(RunMismatch, match="all hosts must have the same events"):
        score(tmp_path, others[0], 2, lambda rank: others[rank].solution)


def test_a_run_without_a_checkpoint_is_refused(tmp_path):
    with pytest.raises(NotFound, match="must hold a checkpoint"):
        score(tmp_path, Synthetic(1, 40), 1)


@pytest.mark.parametrize(
    "message",
    [
        [],
        [np.ones(2, np.uint8)],
        [np.ones(1, np.int64)],
        [np.ones(1, np.uint8), np.zeros(2, np.float32)],
        [np.ones(1, np.uint8), np.zeros(2, np.float32), np.zeros(3, np.float32)],
        [np.ones(1, np.uint8), np.zeros(2, np.float64), np.zeros(2, np.float32)],
        [np.ones(1, np.uint8), np.zeros(1, np.float32), np.array([np.nan], np.float32)],
    ],
)
def test_messages_that_no_host_sends_are_refused(message):
    with pytest.raises(DataError, match=r"a host must send|a logit must be finite"):
        _Gathered(BINARY, 1).take([message])


def test_only_ranges_with_missing_events_name_them():
    arrays = [np.array([2, 5, 8, 3, 3, 0, 4, 2]), np.array([1, 3])]
    assert [(number, events.tolist()) for number, events in _named_events(arrays, 0, 4)] == [
        (2, [5, 6, 7]),
        (3, [1, 3]),
    ]


@pytest.mark.parametrize(
    ("numbers", "events"),
    [
        ([0, 0, 2], []),
        ([4, 0, 2, 2], []),
        ([-1, 0, 2, 2], []),
        ([0, 2, 2, 0], []),
        ([0, 0, 2, 3], []),
        ([0, 0, 2, 1], []),
        ([0, 0, 2, 1], [2]),
        ([0, 0, 2, 1], [-1]),
        ([0, 0, 2, 2], [1]),
    ],
)
def test_events_that_no_host_names_are_refused(numbers, events):
    with pytest.raises(DataError, match="must name ranges of fragments"):
        list(_named_events([np.array(numbers, np.int64), np.array(events, np.int64)], 0, 4))
