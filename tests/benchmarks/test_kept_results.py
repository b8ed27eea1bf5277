"""Results that a script keeps: what is found again, and what a killed process leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from benchmarks.support.kept_results import KeptResults, training_key
from tests.conftest import ROOT
from trainer.options.config import TrainConfig


def never() -> object:
    raise AssertionError("the result was kept")


@pytest.mark.parametrize("name", [None, "results/found.json"])
def test_a_result_is_made_once(tmp_path, name) -> None:
    file = None if name is None else tmp_path / name
    kept = KeptResults(file)
    assert kept.get({"seed": 1, "log": "a"}, lambda: (0.1 + 0.2, "x")) == [0.1 + 0.2, "x"]
    again = kept if file is None else KeptResults(file)
    assert again.get({"log": "a", "seed": 1}, never) == [0.1 + 0.2, "x"], "the order of a key's parts does not matter"
    assert again.get({"log": "a", "seed": 2}, lambda: 7) == 7


def test_an_error_keeps_nothing(tmp_path) -> None:
    kept = KeptResults(tmp_path / "found.json")
    with pytest.raises(AssertionError):
        kept.get({}, never)
    assert kept.get({}, lambda: 1) == 1


def test_a_killed_process_leaves_all_finished_results(tmp_path) -> None:
    file = tmp_path / "found.json"
    program = (
        "import os, signal, sys; from pathlib import Path; from benchmarks.support.kept_results import KeptResults\n"
        "kept = KeptResults(Path(sys.argv[1]))\n"
        "for n in range(3): kept.get({'n': n}, lambda: 10 * n)\n"
        "os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "kept.get({'n': 3}, lambda: 30)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, file], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)  # fmt: skip
    assert done.returncode == -signal.SIGKILL
    kept = KeptResults(file)
    assert [kept.get({"n": n}, never) for n in range(3)] == [0, 10, 20]
    assert kept.get({"n": 3}, lambda: 31) == 31


def test_trainings_of_other_options_or_events_have_other_keys(tmp_path) -> None:
    config = TrainConfig(str(tmp_path), network="dlrm", seed=1)
    key = training_key("films", config, 10, 2)
    assert json.loads(json.dumps(key)) == key
    assert key == training_key("films", TrainConfig("elsewhere", network="dlrm", seed=1), 10, 2)
    others = [training_key("news", config, 10, 2), training_key("films", config, 10, 3), training_key("films", TrainConfig("r", network="dlrm", seed=2), 10, 2),
              training_key("films", TrainConfig("r", network="dlrm", seed=1, tower_modules={"towers": [["a"]], "compression": 2}), 10, 2)]  # fmt: skip
    assert all(other != key for other in others)
