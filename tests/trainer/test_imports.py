from __future__ import annotations

import json
import subprocess
import sys

import pytest

import trainer

LIGHT = "trainer trainer.run.reading.stream trainer.run.reading.batches trainer.checkpoints.checkpoint trainer.model.metrics trainer.tables trainer.run.progress.ledger trainer.run.progress.epochs trainer.run.loop trainer.serving.trained"


def loaded_by(modules: str, more: str = "pass") -> set[str]:
    """What a fresh process has loaded once it has imported these modules."""
    program = (
        f"import json, sys, importlib; [importlib.import_module(m) for m in '{modules}'.split()];"
        f"{more}; print(json.dumps(sorted(sys.modules)))"
    )
    return set(json.loads(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout))


def test_light_modules_load_neither_tensorflow_nor_beam():
    """The loop and trained models load TensorFlow only once there is something to compute."""
    loaded = loaded_by(LIGHT, "import trainer; [getattr(trainer, name) for name in trainer.__all__]")
    assert not loaded & {"tensorflow", "keras", "apache_beam", "pandas", "sklearn"}
    assert "trainer.run.loop" in loaded


def test_a_job_is_launched_without_tensorflow():
    """The command that starts a job leaves the model to its hosts; it loads TensorFlow only to compare options."""
    names = "headrace.cli.train headrace.cli.training_jobs headrace.cli.chaos trainer.job.launch.supervisor trainer.job.launch.training_job trainer.run.choosing.choose"
    assert not loaded_by(names) & {"tensorflow", "keras", "apache_beam"}


def test_the_decisions_of_a_job_load_no_arrays():
    """A controller starts in a fraction of a second; its plan of units is the only part that needs numpy."""
    names = " ".join(
        f"trainer.scheduling.{name}" for name in ("advance", "assignment", "buffer_control", "documents", "holds")
    )
    assert not loaded_by(names) & {"numpy", "pyarrow", "tensorflow", "apache_beam", "sqlalchemy"}


def test_a_controller_and_its_members_load_no_model_and_no_database():
    """Readers and the controller start in less than a second."""
    names = "open_controller controller_service controller_client membership"
    loaded = loaded_by(" ".join(f"trainer.job.control.{name}" for name in names.split()))
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
