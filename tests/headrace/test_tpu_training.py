"""``headrace train --tpu``: on an emulated slice, and what is refused without TPUs or before anything is read."""

from __future__ import annotations

import json
import subprocess

import pytest

pytest.importorskip("tensorflow")

from headrace.cli.main import run
from headrace.demo.sample_log import write_sample_log
from tests.headrace.conftest import SMALL, UNTRIED
from tests.support.emulated_slice import EmulatedSlice
from tests.support.processes import PATIENCE_SECS
from trainer.serving.deltas.verify_chain import verify_chain
from transforms.child_process import child_environment, module_command

TRAIN = ("train", "first", "--end", "2026-03-02T03:00", "--test-end", "2026-03-02T04:00")


@pytest.fixture
def submitted(cli, models_file, tmp_path):
    write_sample_log(tmp_path / "log", SMALL, late=False)
    cli("table", "add", "log", tmp_path / "log", "--time-column", "time")
    cli("model", "submit", models_file, "--table", "log", "--model", "first")
    return cli


@pytest.fixture
def on_slice(monkeypatch):
    """The names and limits with which an emulated slice was connected."""
    asked = []

    def connect(name, settings, on_lost):
        asked.append((name, settings.default_max_ids, settings.default_max_unique_ids))
        return EmulatedSlice(2, settings=settings)

    monkeypatch.setattr("trainer.tables.tpu.connected_slice.connect", connect)
    return asked


def options_file(tmp_path, **options):
    file = tmp_path / "training.json"
    chosen = {**UNTRIED, "batch_rows": 64, "deep": True, "deterministic": False, **options}
    file.write_text(json.dumps(chosen), encoding="utf-8")
    return str(file)


@pytest.mark.slow
def test_a_slice_trains_and_a_test_on_this_machine_follows(submitted, on_slice, tmp_path):
    plain = options_file(tmp_path)
    expected = submitted(*TRAIN, "--config", plain, "--run-dir", tmp_path / "cpu", "--json").json
    limits = ("--max-ids", 1024, "--max-unique-ids", 512)
    train = (*TRAIN, "--config", plain, "--run-dir", tmp_path / "tpu", "--tpu", "local", *limits, "--json")
    found = submitted(*train).json
    assert on_slice == [("local", 1024, 512)]
    assert found["events_this_time"] == expected["events_this_time"]
    assert found["exact"]
    for name in ("auc", "log_loss", "normalized_entropy"):
        assert found["test"][name] == pytest.approx(expected["test"][name], abs=1e-4)
    by_option = options_file(tmp_path, engine="tpu")
    again = submitted(*TRAIN, "--config", by_option, "--run-dir", tmp_path / "tpu", "--json").json
    assert on_slice[1:] == [("local", 256, 256)]
    assert again["events_this_time"] == 0
    on_cpu = submitted(*TRAIN, "--config", options_file(tmp_path), "--run-dir", tmp_path / "tpu", "--json").json
    assert (on_cpu["events_this_time"], len(on_slice)) == (0, 2)


def test_a_machine_without_tpus_is_one_clear_error(submitted, tmp_path):
    err = submitted(
        *TRAIN, "--config", options_file(tmp_path), "--run-dir", tmp_path / "run", "--tpu", "local", status=2
    ).err
    assert "the tpu engine must reach a TPU" in err
    assert "--tpu local" in err
    assert "train with the cpu engine" in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        (["--max-ids", "512"], {}, "--max-ids must go with --tpu"),
        (["--tpu", "local", "--max-unique-ids", "0"], {}, "--max-unique-ids must be >= 1"),
        (["--tpu", "local"], {"engine": "cpu"}, "--tpu must go with the tpu engine"),
        (["--tpu", "local", "--hosts", "2"], {}, "needs a single process"),
        (["--follow"], {"engine": "tpu"}, "needs a single process"),
        (["--launcher", "remote", "--hosts", "2", "--tpu", "local"], {}, "a job whose tables are in a TPU slice must have one host"),
        (["--launcher", "remote", "--hosts", "1", "--tpu", "my-slice"], {}, "the TPUs of each host"),
    ],
)  # fmt: skip
def test_options_that_do_not_go_together_are_refused_before_anything_is_read(
    arguments, options, text, tmp_path, capsys
):
    file = tmp_path / "training.json"
    file.write_text(json.dumps(options), encoding="utf-8")
    home = tmp_path / "home"
    assert run(["train", "ctr", "--home", str(home), "--config", str(file), *arguments]) == 2
    assert text in " ".join(capsys.readouterr().err.split())
    assert not home.exists()


def test_an_optimizer_that_is_on_no_tpu_is_refused_by_name(submitted, on_slice, tmp_path):
    file = options_file(tmp_path, embedding_optimizer="row_wise_adagrad")
    err = submitted(*TRAIN, "--config", file, "--run-dir", tmp_path / "run", "--tpu", "local", status=2).err
    assert "embedding_optimizer must be one of" in err
    assert not on_slice


@pytest.mark.slow
def test_a_slice_over_servers_trains_tables_that_no_slice_has(submitted, on_slice, tmp_path):
    """Hashed tables are in no slice; those of servers are trained beside one, and both runs go on on the other device."""
    file = options_file(tmp_path, network="dlrm", staleness=2, embedding_weight_decay=0.01, partitions_per_epoch=1)
    train = ("train", "first", "--config", file, "--servers", 2)
    beside = ("--tpu", "local", "--run-dir", tmp_path / "tpu", "--export", tmp_path / "links")
    for end in ("2026-03-02T01:00", "2026-03-02T03:00"):
        for device in (beside, ("--run-dir", tmp_path / "cpu")):
            submitted(*train, *device, "--end", end)
    found = submitted(*train, *beside, "--json").json
    expected = submitted(*train, "--run-dir", tmp_path / "cpu", "--json").json
    assert len(on_slice) == 3
    assert found["exact"]
    assert found["epochs"][-1]["metrics"]["log_loss"] == pytest.approx(
        expected["epochs"][-1]["metrics"]["log_loss"], abs=1e-5
    )
    assert [one for one in verify_chain(tmp_path / "links") if one.problem] == []
    on_cpu = submitted(*train, "--run-dir", tmp_path / "tpu", "--json").json
    assert (on_cpu["events_this_time"], len(on_slice)) == (0, 3)


@pytest.mark.medium
@pytest.mark.parametrize("visible", [None, "-1"])
def test_a_machine_without_gpus_is_one_clear_error(submitted, tmp_path, visible):
    """In a process of its own: TensorFlow looks for GPUs once. A variable that hides GPUs is named."""
    command = module_command("headrace", "train", "first", "--config", options_file(tmp_path), "--device", "gpu",
                             "--run-dir", str(tmp_path / "run"), "--home", str(tmp_path / "home"))  # fmt: skip
    environment = {name: value for name, value in child_environment().items() if name != "CUDA_VISIBLE_DEVICES"}
    environment |= {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    found = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if found.returncode == 0:
        pytest.skip("this machine has a GPU")
    said = " ".join(found.stderr.split())
    assert found.returncode == 2
    assert "--device gpu must have a GPU that TensorFlow sees" in said
    assert "sees CPU:0" in said
    assert "nvidia-smi" in said
    assert ("CUDA_VISIBLE_DEVICES is '-1'" in said) == (visible is not None), "nothing else hides GPUs"
    assert not (tmp_path / "run").exists()


@pytest.mark.medium
@pytest.mark.parametrize("is_phased", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_job_on_a_machine_without_gpus_is_the_same_error_before_anything_is_tried_or_started(
    submitted, tmp_path, is_phased
):
    """Of phases also where only the last one trains on GPUs. The command hides GPUs from itself, not from what it starts."""
    (tmp_path / "phases.toml").write_text('[caught_up]\ndevice = "gpu"\n')
    environment = {name: value for name, value in child_environment().items() if name != "CUDA_VISIBLE_DEVICES"}
    given = ("--from", str(tmp_path / "phases.toml")) if is_phased else ("--device", "gpu")
    command = module_command("headrace", "train", "first", *given, "--hosts", "2",
                             "--run-dir", str(tmp_path / "run"), "--home", str(tmp_path / "home"))  # fmt: skip
    found = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=PATIENCE_SECS)
    if found.returncode == 0:
        pytest.skip("this machine has a GPU")
    said = " ".join(found.stderr.split())
    assert found.returncode == 2
    assert said.startswith("error: --device gpu must have a GPU that TensorFlow sees"), said
    assert "CUDA_VISIBLE_DEVICES" not in said
    assert not (tmp_path / "run").exists()
