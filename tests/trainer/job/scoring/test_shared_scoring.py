"""Hosts that score together have the predictions of one process, bit for bit, whatever the model's tables are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tests.trainer.synthetic import Synthetic, config
from tests.trainer.thread_channels import on_channels
from trainer.errors import RunMismatch
from trainer.job.scoring.shared_scoring import ScoringChannels, score_together
from trainer.model.heads import BINARY
from trainer.run.loop import train
from trainer.run.progress.identity import in_time_order
from trainer.serving.scored_events import ScoredEvents, score_events
from trainer.serving.segmented import evaluate_by
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
        return score_together(
            str(run), (solution or (lambda rank: data.solution))(rank), data.read, data.read_labels, shared, **options
        )

    return on_channels(hosts, work)


@pytest.mark.medium
@pytest.mark.parametrize(("kind", "are_labelled"), [*((one, True) for one in sorted(KINDS)), ("plain", False), ("calibrated", False)])  # fmt: skip
def test_hosts_have_the_predictions_of_one_process(kind, are_labelled, tmp_path):
    data, options = Synthetic(2, 200), {"linear": True, **KINDS[kind]}
    train(data.solution, data.read, config(tmp_path, batch_rows=32, dim=4, bottom_mlp=(8,), top_mlp=(8,), **options))
    newer = newer_events(are_labelled=are_labelled)
    alone = score_events(load_trained(str(tmp_path)), newer.solution, newer.read)
    for hosts in (2, 3):
        found = score(tmp_path, newer, hosts)
        assert np.concatenate([one.events.labels for one in found]).tobytes() == alone.labels.tobytes()
        assert np.concatenate([one.events.logits for one in found]).tobytes() == alone.logits.tobytes()
        scored = [(path, event) for one in found for path, positions in zip(paths(one), one.events.positions, strict=True) for event in stored(newer, path, positions)]  # fmt: skip
        assert scored == [(path, event) for path, positions in zip(newer.tables, alone.positions, strict=True) for event in stored(newer, path, positions)]  # fmt: skip
        kept = [{name: len(one) for name, one in host.saved.arrays.items() if "/rows/" in name} for host in found]
        whole = {name: len(one) for name, one in load_trained_arrays(tmp_path).items() if "/rows/" in name}
        assert {name: sum(one[name] for one in kept) for name in whole} == whole, "each row is on one host"
        assert figures(tmp_path, newer, hosts) == [figures(tmp_path, newer, 1)[0]] * hosts


def paths(host):
    return [one.path for one in host.fragments]


def stored(data, path, positions):
    """The stored events that were scored."""
    return range(data.tables[path].num_rows) if positions is None else positions.tolist()


def figures(run, data, hosts):
    """The evaluation on each host, also by a column of the events."""

    def read_columns(fragment):
        return data.tables[fragment.path].select(["user"])

    def work(channels):
        if hosts == 1:
            fragments = [one for part in in_time_order(data.solution) for one in part.fragments]
            return evaluate_by(score_events(load_trained(str(run)), data.solution, data.read), fragments, ["user"], read_columns, most=3)  # fmt: skip
        shared = ScoringChannels(channels.tables, channels.steps)
        found = score_together(str(run), data.solution, data.read, data.read_labels, shared)
        return evaluate_by(found.events, found.fragments, ["user"], read_columns, most=3, exchange=channels.steps)

    return on_channels(hosts, work)


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
    assert shown == [(0, events), (0, events), (events, events)]
    assert [len(one.events.labels) for one in found] == [0, 0, 0, events]
    assert events < 32


@pytest.mark.medium
def test_the_progress_counts_the_events_of_all_hosts(tmp_path):
    data = Synthetic(1, 60)
    train(data.solution, data.read, config(tmp_path, batch_rows=16, deep=False, linear=True))
    newer, shown = Synthetic(1, 60, first=4), []
    score(tmp_path, newer, 2, on_progress=lambda *given: shown.append(given))
    stored = sum(one.num_rows for one in newer.tables.values())
    steps = -(-stored // 32)
    assert shown[0] == shown[1] == (0, stored), "rows of a batch are looked up before it is scored"
    assert shown[1:] == [(min(32 * step, stored), stored) for step in range(steps + 1)]


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


@pytest.mark.medium
def test_hosts_that_ask_for_other_figures_are_refused():
    events = ScoredEvents(BINARY, np.zeros(0, np.float32), np.zeros(0), ())
    with pytest.raises(RunMismatch, match="all hosts must have the same --by and --most") as caught:
        on_channels(2, lambda own: evaluate_by(events, (), ["user"] * own.steps.rank, None, exchange=own.steps))
    assert caught.value.where == "host 1"


@pytest.mark.medium
def test_a_label_that_goes_away_meanwhile_is_refused(tmp_path):
    data = Synthetic(1, 60)
    train(data.solution, data.read, config(tmp_path, batch_rows=16, deep=False, linear=True))
    newer = newer_events(are_labelled=False)
    newer.read_labels = Synthetic(2, 150, first=4).read_labels
    with pytest.raises(DataError, match="must not change while it is scored"):
        score(tmp_path, newer, 1)
