"""Options that are chosen from data and stored by the run."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tests.trainer.synthetic import Synthetic
from trainer.errors import ConfigError, RunMismatch
from trainer.model.event_losses import event_losses
from trainer.model.heads import Head
from trainer.run.choosing import choose
from trainer.run.choosing.choose import choose_config
from trainer.run.choosing.losses import constant_logits
from trainer.run.loop import train
from trainer.serving.trained import load_trained

pytest.importorskip("tensorflow")

SMALL = {"dim": 4, "bottom_mlp": (8,), "top_mlp": (8,), "deterministic": False}


def unscaled(data):
    """The price in hundreds of thousands, as logs have it."""
    for path, table in data.tables.items():
        at = table.column_names.index("price")
        price = np.exp(8 + 2 * table.column("price").to_numpy()).astype(np.float32)
        data.tables[path] = table.set_column(at, "price", pa.array(price, from_pandas=True))
    return data


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """A run of which nothing was chosen by hand."""
    folder = tmp_path_factory.mktemp("run")
    data, tried = unscaled(Synthetic(4, 500)), []
    chosen = choose_config(data.solution, data.read, SMALL, run_dir=str(folder), tell=tried.append)
    return folder, data, chosen, tried, train(data.solution, data.read, chosen)


@pytest.mark.medium
def test_a_small_log_with_unscaled_numbers_beats_its_rate(started):
    folder, _, chosen, tried, report = started
    later = unscaled(Synthetic(2, 500, first=4))
    scores = load_trained(str(folder)).evaluate(later.solution, later.read)
    assert scores.normalized_entropy < 0.95
    assert chosen.batch_rows == 64
    assert dict(chosen.dense_scaling)["price"][0][0] == "log"
    assert chosen.chosen["batch_rows"].startswith("128 steps a pass")
    assert tried[0] == "trying candidates on slice 1 of 3: 8 of 8", "no other networks, since widths of MLPs are given"
    assert sum(one.is_chosen for one in chosen.trial) == 1
    assert all("cross layers" not in one.name for one in chosen.trial)
    segments = 1 if report.held_out is None else 2
    assert len(report.history) == segments * report.ledger.expected, "4,000 events are fewer than an epoch's"
    assert 1 <= report.ledger.expected <= chosen.passes


@pytest.mark.medium
def test_a_run_keeps_its_choices_and_refuses_others(started):
    folder, data, chosen, _, first = started
    again = choose_config(data.solution, pytest.fail, {}, run_dir=str(folder))
    assert again == chosen
    longer = unscaled(Synthetic(5, 500))
    report = train(longer.solution, longer.read, choose_config(longer.solution, pytest.fail, {}, run_dir=str(folder)))
    assert report.epochs == first.ledger.expected
    with pytest.raises(RunMismatch, match="dim is 9, was"):
        train(data.solution, data.read, choose_config(data.solution, data.read, {"dim": 9}, run_dir=str(folder)))


@pytest.mark.slow
def test_equal_data_gives_equal_choices(tmp_path):
    data = Synthetic(2, 150)
    trials: list[str] = []
    one, other = (
        choose_config(data.solution, data.read, SMALL, run_dir=str(tmp_path), before_trial=lambda: trials.append("now"))
        for _ in range(2)
    )
    assert one == other
    assert trials == ["now", "now"]


@pytest.mark.medium
def test_candidates_that_diverge_lose_the_trial(tmp_path):
    data = Synthetic(2, 300)
    given = {**SMALL, "deep": True, "dense_optimizer": "sgd", "dense_learning_rate": 1e30}
    chosen = choose_config(data.solution, data.read, given, run_dir=str(tmp_path))
    assert chosen.dense_learning_rate == 1e30
    assert chosen.chosen, "every candidate diverges, and the most cautious one is taken"


def test_given_options_are_kept_and_auto_is_none(tmp_path):
    data = Synthetic(2, 150)
    given = {**SMALL, "batch_rows": 33, "passes": 2, "deep": False, "linear": True, "linear_learning_rate": 0.3,
             "dense_learning_rate": 0.02, "initial_bias": "auto", "events_per_epoch": None}  # fmt: skip
    chosen = choose_config(data.solution, data.read, given, run_dir=str(tmp_path))
    kept = {name: getattr(chosen, name) for name in given if given[name] not in (None, "auto")}
    assert kept == {name: value for name, value in given.items() if value not in (None, "auto")}
    assert chosen.initial_bias != 0
    assert chosen.events_per_epoch == 10_000
    with pytest.raises(ConfigError, match="a training option must be a known one"):
        choose_config(data.solution, pytest.fail, {"batch_row": 1}, run_dir=str(tmp_path))


@pytest.mark.parametrize("head", [Head(), Head("multiclass", 3), Head("regression", 2, 1.0, 2.0)])
def test_the_mean_alone_loses_what_the_figures_say(head):
    labels = np.array([0, 1, 1, 0] if head.task == "binary" else [0, 1, 2, 1], np.float32)
    logits = constant_logits(head, [labels], len(labels))
    collector = head.collector()
    collector.add(labels, logits.astype(np.float32))
    scores = collector.scores()
    losses = event_losses(head, labels, logits)
    if head.task == "regression":
        assert losses.mean() * head.scale**2 == pytest.approx(scores.mean_squared_error, rel=1e-5)
    else:
        assert losses.mean() == pytest.approx(scores.log_loss, rel=1e-5)


@pytest.mark.parametrize(("given", "tried"), [({}, 1), ({"batch_rows_per_host": True}, 3)])
def test_a_trial_for_hosts_that_share_batches_is_that_of_one_process(tmp_path, monkeypatch, given, tried):
    asked = []

    def note(options, *, hosts):
        asked.append(hosts)
        return ()

    monkeypatch.setattr(choose, "candidates_of", note)
    data = Synthetic(2, 100)
    with pytest.raises(ConfigError, match="both be false"):
        choose_config(data.solution, data.read, {**SMALL, **given}, run_dir=str(tmp_path), hosts=3)
    assert asked == [tried]
