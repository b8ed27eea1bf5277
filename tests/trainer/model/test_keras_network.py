from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.processes import PATIENCE_SECS
from tests.trainer.synthetic import Synthetic, config
from trainer.errors import ConfigError, RunMismatch
from trainer.model.inputs import TypedInput, lay_out
from trainer.model.user_functions import with_code_digests
from trainer.options.config import TrainConfig
from transforms.types import Dense, DType

pytest.importorskip("tensorflow")

from tests.trainer.model import networks
from trainer.model.dense_model import DenseModel
from trainer.run.loop import train
from trainer.serving.trained import load_trained

HERE = "tests.trainer.model.networks"
ITEMS = [TypedInput("a", Dense(DType.INT64, 10)), TypedInput("b", Dense(DType.INT64, 10)),
         TypedInput("x", Dense(DType.FLOAT32))]  # fmt: skip
NO_LINEAR = np.zeros((6, 0), np.float32)
ONES = np.ones(6, np.float32)


def model_of(network, **options):
    given = config("run", batch_rows=6, network=f"{HERE}:{network}" if isinstance(network, str) else network, **options)
    return DenseModel(lay_out(ITEMS, given), given)


def batch(seed=0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(6, 8)).astype(np.float32), NO_LINEAR, rng.normal(size=(6, 1)).astype(np.float32),
            (rng.random(6) < 0.5).astype(np.float32), ONES)  # fmt: skip


def test_logits_are_those_of_the_model():
    model = model_of("functional", initial_bias=-1.5)
    activations, linear, dense, *_ = batch()
    hidden, hidden_bias, last, last_bias = [
        array for name, array in model.state().items() if name.startswith("weights/")
    ]
    expected = np.maximum(np.concatenate([activations, dense], axis=1) @ hidden + hidden_bias, 0) @ last + last_bias
    np.testing.assert_allclose(model.predict(activations, linear, dense), expected[:, 0], rtol=1e-5, atol=1e-6)
    assert last_bias.tolist() == [-1.5]


@pytest.mark.medium
@pytest.mark.parametrize("network", ["functional", "busy"])
def test_a_restored_model_continues_bit_for_bit(network):
    def run(model, steps):
        for seed in steps:
            model.step(*batch(seed))
        return model

    straight = run(model_of(network), range(8)).state()
    second = model_of(network, seed=9)
    second.load_state(run(model_of(network), range(4)).state())
    resumed = run(second, range(4, 8)).state()
    assert any(name.startswith("moving/") for name in straight) == (network == "busy")
    assert any(name.startswith("random/") for name in straight) == (network == "busy")
    assert resumed.keys() == straight.keys()
    for name, expected in straight.items():
        assert resumed[name].tobytes() == expected.tobytes(), name


def test_weights_are_drawn_from_the_seed_and_no_other_state_changes():
    python, arrays = random.getstate(), np.random.get_state()[1].copy()
    one, same, other = (model_of("functional", seed=seed).state()["weights/000"] for seed in (1, 1, 2))
    assert one.tobytes() == same.tobytes() != other.tobytes()
    assert random.getstate() == python
    np.testing.assert_array_equal(np.random.get_state()[1], arrays)


def test_predictions_use_no_dropout_and_logits_of_a_step_are_from_before_it():
    model = model_of("busy")
    activations, linear, dense, labels, weights = batch()
    expected = model.predict(activations, linear, dense)
    logits, *_ = model.step(activations, linear, dense, labels, weights)
    np.testing.assert_array_equal(logits, expected)


def test_penalties_are_a_part_of_the_loss():
    model = model_of("busy", dense_optimizer="sgd", dense_learning_rate=0.1)
    activations, linear, dense, labels, weights = batch()
    kernel = model.state()["weights/002"]
    np.testing.assert_array_equal(activations * 0, np.zeros_like(activations))
    *_, flat = model.gradients(activations * 0, linear, dense * 0, labels, weights)
    # Constant inputs are normalised to zeros: the kernel has the gradient of its penalty alone.
    sizes = [array.size for name, array in model.state().items() if name.startswith("weights/")]
    found = np.split(flat, np.cumsum(sizes)[:-1])[2]
    np.testing.assert_allclose(found, 0.02 * kernel.ravel(), rtol=1e-5, atol=1e-7)


def test_hosts_share_only_trained_variables():
    model_of("functional").check_replicable()
    with pytest.raises(ConfigError, match="several hosts"):
        model_of("busy").check_replicable()


@pytest.mark.parametrize(("network", "words"), [
    ("too_wide", "float32 logits"), ("no_model", "must return a Keras model"), ("other_inputs", "must take the activations"),
    ("NOT_A_FUNCTION", "must be a function"), ("absent", "must be in its module"),
])  # fmt: skip
def test_a_network_that_does_not_fit_is_refused(network, words):
    with pytest.raises(ConfigError, match=words) as caught:
        model_of(network)
    assert network in caught.value.where


def test_a_module_that_cannot_be_imported_is_refused():
    with pytest.raises(ConfigError, match="must be importable") as caught:
        with_code_digests(config("run", network="no_such_module:build"))
    assert "no_such_module" in caught.value.value


def test_a_function_stands_for_its_path_and_one_without_a_path_is_refused():
    assert TrainConfig("run", network=networks.functional).network == f"{HERE}:functional"
    for function in (lambda shapes: None, model_of.__call__):
        with pytest.raises(ConfigError, match="importable in other processes"):
            TrainConfig("run", network=function)


@pytest.mark.slow
def test_the_digest_is_of_the_code_and_all_that_it_reaches(tmp_path):
    text = Path(networks.__file__).read_text()

    def digest(changed):
        (tmp_path / "own_networks.py").write_text(changed)
        program = ("from tests.trainer.synthetic import config; from trainer.model.user_functions import with_code_digests; "
                   "print(with_code_digests(config('run', network='own_networks:functional')).network_digest)")  # fmt: skip
        path = os.pathsep.join([str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")])
        ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_SECS,
                             env={**os.environ, "PYTHONPATH": path})  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.strip()

    same = digest(text)
    assert len(same) == 64
    assert digest(text + "\n# a comment\n") == same
    assert digest(text.replace("WIDTH = 8", "WIDTH = 9")) != same
    assert digest(text.replace('activation="relu"', 'activation="tanh"')) != same


def test_a_run_trains_and_serves_a_network_and_refuses_other_code(tmp_path):
    data = Synthetic(2)
    given = config(tmp_path, network=f"{HERE}:busy", passes=3, held_out_share=0.0)
    report = train(data.solution, data.read, given)
    assert report.history[-1].scores.auc > 0.6, "the third pass, over events that were trained before"
    trained = load_trained(str(tmp_path))
    scores = trained.evaluate(data.solution, data.read)
    assert scores.auc > 0.6
    digest = trained.config.network_digest
    assert digest == with_code_digests(given).network_digest
    assert train(data.solution, data.read, given).events == 0  # nothing is left
    with pytest.raises(RunMismatch, match="network"):
        train(data.solution, data.read, config(tmp_path, network=f"{HERE}:functional", passes=3))
    other = config("run", network=f"{HERE}:busy", network_digest="0" * 64)
    with pytest.raises(RunMismatch, match="must have the code"):
        DenseModel(lay_out(ITEMS, other), other)
