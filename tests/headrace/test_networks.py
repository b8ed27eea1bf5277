"""``headrace train`` with a network of the user's, from a module in the working directory."""

from __future__ import annotations

import json

import pytest

from headrace.demo.sample_log import write_sample_log
from tests.headrace.conftest import MODELS, SMALL, UNTRIED

pytest.importorskip("tensorflow")

NETWORK = """
import keras

WIDTH = 8


def build(shapes):
    activations = {name: keras.Input((width,)) for name, width in shapes.widths.items()}
    dense = keras.Input((shapes.dense_width,))
    hidden = keras.layers.Concatenate()([*activations.values(), dense])
    hidden = keras.layers.Dense(WIDTH, activation="relu")(hidden)
    return keras.Model((activations, dense), keras.layers.Dense(shapes.outputs)(hidden))
"""


def test_a_module_of_the_working_directory_trains_a_network(cli, tmp_path, monkeypatch):
    write_sample_log(tmp_path / "log", SMALL, late=False)
    (tmp_path / "models.py").write_text(MODELS, encoding="utf-8")
    (tmp_path / "cli_networks.py").write_text(NETWORK, encoding="utf-8")
    options = {
        **UNTRIED,
        "deep": True,
        "linear": False,
        "network": "cli_networks:build",
        "embedding_learning_rate": 0.01,
    }
    (tmp_path / "training.json").write_text(json.dumps(options), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    cli("table", "add", "log", "log", "--time-column", "time")
    cli("model", "submit", "models.py", "--table", "log")
    trained = cli("train", "first", "--config", "training.json", "--json").json
    assert trained["finished"]
    shown = cli("ckpt", "show", "first", "--json").json
    assert shown["options"]["network"] == "cli_networks:build"
    assert len(shown["options"]["network_digest"]) == 64
    assert [one["shape"] for one in shown["arrays"] if one["name"] == "dense/weights/001"] == [[8]]
