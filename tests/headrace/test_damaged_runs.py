"""``headrace train`` on a run folder with damaged files: equal weights in the end, or one error."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from tests.headrace.conftest import MODELS
from tests.trainer.checkpoints.damage import flipped
from trainer.checkpoints.checkpoint import checkpoints_dir

pytest.importorskip("tensorflow")

OPTIONS = {
    **{"deterministic": False, "dim": 2, "bottom_mlp": [2], "top_mlp": [2], "dropout": 0.1},
    **{"partitions_per_epoch": 1, "passes": 1, "deep": True, "linear": False},
    **{"embedding_learning_rate": 0.01, "dense_learning_rate": 0.003},
}


@pytest.fixture
def train(cli, tmp_path, small_log):
    """Trains the model ``first`` in a folder; more words and the exit status may be given."""
    cli("table", "add", "log", small_log)
    models, options = tmp_path / "models.py", tmp_path / "training.json"
    models.write_text(MODELS, encoding="utf-8")
    options.write_text(json.dumps(OPTIONS), encoding="utf-8")
    cli("model", "submit", models, "--table", "log")
    return lambda folder, **more: cli("train", "first", "--config", options, "--run-dir", folder, "--json", **more)


def manifests(folder: Path) -> dict[str, bytes]:
    return {path.name: (path / "manifest.json").read_bytes() for path in checkpoints_dir(folder).iterdir()}


@pytest.mark.slow
def test_a_damaged_run_gives_equal_weights_or_an_error(train, tmp_path):
    epochs = len(train(tmp_path / "straight").json["epochs"])
    straight = manifests(tmp_path / "straight")
    newest = f"epoch-{epochs:06d}"
    draw = random.Random(20261122)
    files = sorted(path.name for path in (checkpoints_dir(tmp_path / "straight") / newest).iterdir())
    for k, file in enumerate(["manifest.json", *draw.sample(files, 2)]):
        folder = tmp_path / f"damaged-{k}"
        shutil.copytree(tmp_path / "straight", folder)
        path = checkpoints_dir(folder) / newest / file
        data = path.read_bytes()
        path.write_bytes(flipped(data, draw.randrange(len(data)), draw.randrange(8)))
        answer = train(folder)
        assert f"a checkpoint was skipped: {newest}: " in answer.err
        assert str(path) in answer.err
        assert answer.json["resumed_from"].endswith(f"epoch-{epochs - 1:06d}")
        assert answer.json["exact"]
        assert manifests(folder) == straight


def test_a_run_without_an_intact_checkpoint_does_not_begin_again(train, tmp_path):
    train(tmp_path / "run")
    for path in checkpoints_dir(tmp_path / "run").iterdir():
        (path / "manifest.json").write_bytes(b"{}")
    before = manifests(tmp_path / "run")
    answer = train(tmp_path / "run", status=3)
    assert "a run must have an intact checkpoint" in answer.err
    assert "manifest.json" in answer.err
    assert "restore the directory from a backup" in answer.err
    assert "Traceback" not in answer.err
    assert manifests(tmp_path / "run") == before


def test_a_run_of_another_release_is_left_as_it_is(train, tmp_path):
    train(tmp_path / "run")
    for path in checkpoints_dir(tmp_path / "run").iterdir():
        (path / "manifest.json").write_text('{"format": "headrace.checkpoint/1", "files": {}, "arrays": {}}')
    before = manifests(tmp_path / "run")
    answer = train(tmp_path / "run", status=2)
    assert "headrace.checkpoint/1" in answer.err
    assert "release of Headrace that wrote it" in answer.err
    assert manifests(tmp_path / "run") == before
