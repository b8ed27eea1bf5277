"""Tables that a user describes, with TensorFlow's classes or light specs, take the place of those of the options."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trainer.model import own_tables
from tests.trainer.synthetic import Synthetic, config
from trainer.errors import ConfigError, RunMismatch, UnsupportedSetting
from trainer.model.inputs import TypedInput, lay_out
from trainer.model.user_functions import with_code_digests
from trainer.options.config import TrainConfig
from trainer.tables import Adagrad, Adam
from transforms.types import Dense, DType, Ragged

pytest.importorskip("tensorflow")

from trainer.run.loop import train
from trainer.serving.trained import load_trained

HERE = "tests.trainer.model.own_tables"
ITEMS = [TypedInput("a", Ragged(DType.INT64, 10)), TypedInput("b", Ragged(DType.INT64, 10)),
         TypedInput("c", Dense(DType.INT64, 7))]  # fmt: skip


def laid_out(name, **options):
    return lay_out(ITEMS, config("run", embeddings=f"{HERE}:{name}", **options))


def test_the_described_tables_are_used_and_others_are_those_of_the_options():
    layout = laid_out("light")
    assert layout.features[:2] == tuple(own_tables.light())
    assert (layout.features[2].table.name, layout.features[2].table.dim) == ("c", 4)
    assert [feature.width for feature in layout.features] == [6, 12, 4]
    assert layout.bounds == (16, 16, 7)


def test_tensorflows_classes_say_the_same():
    assert laid_out("tensorflow_nest") == laid_out("light")


def test_a_table_without_an_optimizer_has_that_of_the_options():
    (one, *_) = laid_out("without_optimizer", embedding_optimizer="row_wise_adagrad").features
    assert one.table.optimizer == lay_out(ITEMS, config("run", embedding_optimizer="row_wise_adagrad")).features[0].table.optimizer  # fmt: skip
    assert isinstance(laid_out("without_optimizer").features[0].table.optimizer, Adagrad)


@pytest.mark.parametrize(("name", "words"), [
    ("of_another_input", "must have the name of an embedded input"), ("too_small", "a row for every bucket"),
    ("twice", "different names"), ("mixed", "have one type"), ("failing", "vocabulary file is missing"),
    ("NOT_A_FUNCTION", "must be a function"), ("absent", "must be in its module"),
])  # fmt: skip
def test_tables_that_do_not_fit_are_refused(name, words):
    with pytest.raises(ConfigError, match=words) as caught:
        laid_out(name)
    assert name in caught.value.where


@pytest.mark.parametrize("name", ["no_features", "unsupported"])
def test_what_cannot_be_converted_is_refused_by_name(name):
    with pytest.raises(UnsupportedSetting):
        laid_out(name)


@pytest.mark.parametrize("option", [{"dims": {"a": 3}}, {"combiners": {"b": "sum"}}, {"tables": {"a": "x"}}])
def test_an_input_is_described_once(option):
    with pytest.raises(ConfigError, match="that embeddings describes"):
        laid_out("light", **option)


def test_a_path_that_cannot_be_is_refused():
    assert TrainConfig("run", embeddings=own_tables.light).embeddings == f"{HERE}:light"
    for wrong in ("light", "a b:c", 3):
        with pytest.raises(ConfigError, match="embeddings must be module:function"):
            TrainConfig("run", embeddings=wrong)
    with pytest.raises(ConfigError, match="embeddings_digest"):
        TrainConfig("run", embeddings_digest="0" * 64)
    with pytest.raises(ConfigError, match="importable in other processes"):
        TrainConfig("run", embeddings=lambda: None)


@pytest.mark.medium
def test_a_run_trains_and_serves_the_tables_and_refuses_other_code(tmp_path):
    data = Synthetic(2)
    plain = train(data.solution, data.read, config(tmp_path / "plain", passes=2))
    given = config(tmp_path / "own", passes=2, embeddings=f"{HERE}:as_the_options")
    own = train(data.solution, data.read, given)
    assert own.final == plain.final  # the same tables train bit for bit alike
    trained = load_trained(str(tmp_path / "own"))
    assert trained.config.embeddings_digest == with_code_digests(given).embeddings_digest != ""
    assert trained.evaluate(data.solution, data.read) == load_trained(str(tmp_path / "plain")).evaluate(data.solution, data.read)  # fmt: skip
    assert "user" in {feature.name for feature in trained.weights.layout.features}
    with pytest.raises(RunMismatch):
        train(data.solution, data.read, config(tmp_path / "own", passes=2))
    with pytest.raises(RunMismatch, match="the function of embeddings must have the code"):
        lay_out(ITEMS, config("run", embeddings=f"{HERE}:light", embeddings_digest="0" * 64))


@pytest.mark.parametrize("network", ["dlrm", "dcn"])
def test_networks_take_sequences(network):
    from trainer.model.dense_model import DenseModel

    given = config("run", batch_rows=6, embeddings=f"{HERE}:light", network=network)
    layout = lay_out(ITEMS, given)
    model = DenseModel(layout, given)
    rng = np.random.default_rng(0)
    activations = rng.normal(size=(6, 22)).astype(np.float32)
    none = np.zeros((6, 0), np.float32)
    found = model.predict(activations, none, none)
    assert found.shape == (6,)
    activations[:, 6:18] += 1.0
    assert not np.array_equal(model.predict(activations, none, none), found)


def test_adam_is_the_tables_own():
    assert isinstance(laid_out("light").features[0].table.optimizer, Adam)
