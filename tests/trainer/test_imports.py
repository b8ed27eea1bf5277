from __future__ import annotations

import json
import subprocess
import sys

import pytest

import trainer

LIGHT = "trainer trainer.reading.stream trainer.reading.batches trainer.checkpoints.checkpoint trainer.model.metrics trainer.embedding trainer.data.ledger trainer.runs.epochs trainer.training.loop trainer.serving.trained"


def test_light_modules_load_neither_tensorflow_nor_beam():
    """The loop and trained models load TensorFlow only once there is something to compute."""
    program = (
        f"import json, sys, importlib; [importlib.import_module(m) for m in '{LIGHT}'.split()]; import trainer;"
        "[getattr(trainer, name) for name in trainer.__all__]; print(json.dumps(sorted(sys.modules)))"
    )
    loaded = set(json.loads(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout))
    assert not loaded & {"tensorflow", "keras", "apache_beam", "pandas", "sklearn"}
    assert "trainer.training.loop" in loaded


def test_a_job_is_launched_without_tensorflow():
    """The command that starts a job leaves the model to its hosts; it loads TensorFlow only to compare options."""
    names = "headrace.cli.train headrace.cli.training_jobs headrace.cli.chaos trainer.launch.supervisor trainer.launch.training_job trainer.training.choosing"
    program = (
        f"import json, sys, importlib; [importlib.import_module(m) for m in '{names}'.split()];"
        "print(json.dumps(sorted(sys.modules)))"
    )
    loaded = set(json.loads(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout))
    assert not loaded & {"tensorflow", "keras", "apache_beam"}


def test_the_decisions_of_a_job_load_no_arrays():
    """A controller starts in a fraction of a second; its plan of units is the only part that needs numpy."""
    names = "advance assignment buffer_control documents holds"
    program = (
        f"import json, sys, importlib; [importlib.import_module('trainer.scheduling.' + m) for m in '{names}'.split()];"
        "print(json.dumps(sorted(sys.modules)))"
    )
    loaded = set(json.loads(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout))
    assert not loaded & {"numpy", "pyarrow", "tensorflow", "apache_beam", "sqlalchemy"}


def test_a_controller_and_its_members_load_no_model_and_no_database():
    """Readers and the controller start in less than a second."""
    names = "open_controller controller_service controller_client membership"
    program = (
        f"import json, sys, importlib; [importlib.import_module('trainer.control.' + m) for m in '{names}'.split()];"
        "print(json.dumps(sorted(sys.modules)))"
    )
    loaded = set(json.loads(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout))
    assert not loaded & {"tensorflow", "keras", "apache_beam", "sqlalchemy", "pandas", "polars", "numba", "sklearn"}
    assert "pyarrow.flight" in loaded


def test_the_public_surface():
    assert sorted(trainer.__all__) == [
        "Scores",
        "TrainConfig",
        "TrainEvent",
        "TrainReport",
        "Trained",
        "choose_config",
        "evaluate",
        "load_trained",
        "train",
    ]
    with pytest.raises(AttributeError, match="nope"):
        _ = trainer.nope
