"""A run that goes on with other options: the rest of it is trained with them, and nothing is trained twice or lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.trainer.synthetic import Synthetic, config
from trainer.checkpoints.checkpoint import read_newest
from trainer.errors import RunMismatch, TornCheckpoint
from trainer.options.config import EMBEDDING_OPTIMIZERS
from trainer.run.choosing.choose import choose_config
from trainer.run.loop import train
from trainer.run.weights.changed_optimizers import with_slots_of
from trainer.run.weights.saved_run import read_newest_run

pytest.importorskip("tensorflow")

DATA = Synthetic(3, 200)
#: So small that no weight of 32 bits changes.
NO_RATE = 1e-30


def begun(folder, **options):
    """A run that has trained one epoch."""
    stopped = train(DATA.solution, DATA.read, config(folder, **options), stop=lambda: True)
    assert (stopped.epochs, stopped.finished) == (1, False)
    return read_newest(folder, on_skip=pytest.fail)


def with_recorded(name, value):
    """An option as a run records it: pruning with the defaults that have changed once, since a later release may change them again."""
    return {"metric": "gradient", "spare_share": 0.05, "places": "shared", **value} if name == "pruning" else value


@pytest.mark.medium
@pytest.mark.parametrize(
    ("begins", "goes_on"),
    [
        ({}, {"batch_rows": 32}),
        ({}, {"batch_rows": 512, "staleness": 2}),
        ({"staleness": 3}, {"staleness": 0, "deterministic": False, "threads": 2}),
        ({}, {"embedding_weight_decay": 0.1, "embedding_learning_rate": 0.3}),
        ({"dropout": 0.1, "embedding_dropout": 0.1}, {"dropout": 0.5, "embedding_dropout": 0.3}),
        ({"admit_after": 3}, {"admit_after": 2}),
        ({"calibration": "platt"}, {"calibration": "isotonic"}),
        ({"pruning": {"budget": 0.5}}, {"pruning": {"budget": 0.4, "decay_steps": 3}}),
        ({"linear": True}, {"linear_learning_rate": 0.7, "stop_passes_early": True}),
        ({"linear": True}, {"linear_optimizer": "newton", "dense_optimizer": "newton", "embedding_optimizer": "ftrl"}),
        ({"dense_optimizer": "newton"}, {"dense_optimizer": "sgd", "embedding_optimizer": "adam"}),
        ({"embedding_optimizer": "adam", "admit_after": 3}, {"embedding_optimizer": "row_wise_adagrad"}),
        ({"pruning": {"budget": 0.5}}, {"embedding_optimizer": "adagrad_momentum"}),
    ],
    ids=lambda one: " ".join(one) or "defaults",
)
def test_the_rest_of_a_run_is_trained_with_other_options(tmp_path, begins, goes_on):
    first = begun(tmp_path, **begins)
    options = config(tmp_path, **{**begins, **goes_on})
    report = train(DATA.solution, DATA.read, options)
    assert (report.finished, report.ledger.exact) == (True, True)
    assert (report.ledger.least, report.ledger.most) == (1, 1)
    newest = read_newest(tmp_path, on_skip=pytest.fail)
    recorded = newest.document["identity"]["config"]
    assert {name: recorded[name] for name in goes_on} == {
        name: with_recorded(name, value) for name, value in goes_on.items()
    }
    rows = goes_on.get("batch_rows", options.batch_rows)
    events = [one.scores.events for one in report.history[1:]]
    assert newest.document["step"] - first.document["step"] == sum(-(-one // rows) for one in events)


def test_a_rate_is_that_of_the_rest(tmp_path):
    """With rates too small to change a weight the checkpoint's weights stay, and those of rows that begin are initial ones."""
    first = begun(tmp_path, linear=True)
    rates = dict.fromkeys(("embedding_learning_rate", "dense_learning_rate", "linear_learning_rate"), NO_RATE)
    train(DATA.solution, DATA.read, config(tmp_path, linear=True, **rates))
    last = read_newest(tmp_path, on_skip=pytest.fail)
    assert last.document["step"] > first.document["step"]
    for name, before in first.arrays.items():
        if name.startswith("dense/weights/"):
            np.testing.assert_allclose(last.arrays[name], before, rtol=0, atol=1e-20, err_msg=name)
    tables = [name for name in first.arrays if "/rows/" in name]
    assert len(tables) == 4
    for name in tables:
        own = name.replace("/rows/", "/weights/")
        kept = np.searchsorted(last.arrays[name], first.arrays[name])
        np.testing.assert_array_equal(last.arrays[own][kept], first.arrays[own], err_msg=own)


@pytest.mark.parametrize("optimizer", EMBEDDING_OPTIMIZERS)
def test_weights_stay_when_their_optimizers_change(tmp_path, optimizer):
    """Rates too small to change a weight: the first step under another optimizer moves none."""
    begins = "adagrad" if optimizer == "row_wise_adagrad" else "row_wise_adagrad"
    first = begun(tmp_path, linear=True, embedding_optimizer=begins)
    rates = dict.fromkeys(("embedding_learning_rate", "dense_learning_rate", "linear_learning_rate"), NO_RATE)
    others = {"embedding_optimizer": optimizer, "dense_optimizer": "sgd", "linear_optimizer": "newton"}
    train(DATA.solution, DATA.read, config(tmp_path, linear=True, **others, **rates))
    last = read_newest(tmp_path, on_skip=pytest.fail)
    for name, before in first.arrays.items():
        if name.startswith("dense/weights/"):
            np.testing.assert_allclose(last.arrays[name], before, rtol=0, atol=1e-20, err_msg=name)
        elif "/rows/" in name:
            own = name.replace("/rows/", "/weights/")
            kept = np.searchsorted(last.arrays[name], before)
            np.testing.assert_allclose(last.arrays[own][kept], first.arrays[own], rtol=1e-5, atol=1e-12, err_msg=own)


def test_a_checkpoint_with_slots_of_another_width_is_refused(tmp_path):
    begun(tmp_path)
    saved = read_newest_run(tmp_path, on_skip=pytest.fail)
    name = next(one for one in saved.arrays if "/slots/" in one)
    torn = replace(saved, arrays={**saved.arrays, name: saved.arrays[name][:, 1:]})
    with pytest.raises(TornCheckpoint, match="a table's slots must be those of its optimizer"):
        with_slots_of(torn, config(tmp_path, embedding_optimizer="adam"), dict)


def test_an_option_that_must_stay_is_refused_with_its_reason(tmp_path):
    begun(tmp_path)
    with pytest.raises(RunMismatch, match="must continue with the options") as refused:
        train(DATA.solution, DATA.read, config(tmp_path, dim=8, batch_rows=5, seed=9))
    assert "option dim is 8, was 4, and must not change: it is the shape of trained weights" in refused.value.value
    assert "option seed is 9, was 0" in refused.value.value
    assert "batch_rows" not in refused.value.value


def test_a_change_is_said_and_is_no_choice_of_the_trial_any_more(tmp_path):
    chosen = config(tmp_path, chosen={"batch_rows": "by rule", "dim": "by trial"}, batch_rows=64)
    train(DATA.solution, DATA.read, chosen, stop=lambda: True)
    said: list[str] = []
    asked = {"batch_rows": 32, "dim": chosen.dim, "embedding_learning_rate": chosen.embedding_learning_rate}
    again = choose_config(DATA.solution, pytest.fail, asked, run_dir=str(tmp_path), tell=said.append)
    assert said == ["option batch_rows is 32, was 64: the rest of the run is trained with it"]
    assert dict(again.chosen) == {"dim": "by trial"}
    assert train(DATA.solution, DATA.read, again).finished
