"""The commands on a run whose directory is in a bucket."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.cli.jobs import job_files
from headrace.cli.main import run
from headrace.cli.options.runs import job_folder
from headrace.runs.run_folders import job_folders_of_home
from tests.support.gcs_server import GcsServer
from tests.trainer.checkpoints.job_states import assert_equal, checkpoint, publish_all
from tests.trainer.job.launch.held_jobs import REASON, hold
from trainer.checkpoints.checkpoint import read_newest
from trainer.job.control.open_controller import first_job
from trainer.job.launch.fleet_store import FleetStore
from trainer.job.launch.job_folders import BUCKET_JOBS, job_folder_name
from trainer.scheduling.job import Job, JobSettings
from trainer.scheduling.orders import Commit
from transforms.errors import InputError

RUN = "gs://bucket/runs/ctr-v1"


def test_a_job_folder_is_one_for_each_run() -> None:
    name = job_folder_name(RUN)
    assert name.startswith("bucket-runs-ctr-v1-")
    assert job_folder_name("gs://anonymous@bucket/runs/ctr-v1/?retry_limit_seconds=3") == name
    others = {
        "gs://bucket-runs/ctr-v1",
        "gs://bucket/runs/ctr-v2",
        f"{RUN}?endpoint_override=localhost:1",
        "gs://bucket",
    }
    assert len({name, *map(job_folder_name, others)}) == 5
    strange = job_folder_name(f"gs://bucket/{'ü/../' * 100}")
    assert strange == Path(strange).name
    assert len(strange) < 100


def test_job_folders_are_in_a_local_home_or_where_the_option_says(tmp_path: Path) -> None:
    home = str(tmp_path)
    assert job_folder(RUN, home) == tmp_path / BUCKET_JOBS / job_folder_name(RUN)
    assert job_folder(RUN, home, "/elsewhere") == Path("/elsewhere")
    assert job_folder("runs/ctr-v1", home) == Path("runs/ctr-v1")
    with pytest.raises(InputError, match="--job-dir must go with a run directory in a bucket"):
        job_folder("runs/ctr-v1", home, "/elsewhere")
    with pytest.raises(InputError, match="without --job-dir"):
        job_folder(RUN, "gs://bucket/home")
    assert job_folder(RUN, "gs://bucket/home", "/elsewhere") == Path("/elsewhere")
    for folder in ("runs/b-v1", "runs/a-v1", f"{BUCKET_JOBS}/a"):
        (tmp_path / folder).mkdir(parents=True)
    assert [path.name for path in job_folders_of_home(home)] == ["a-v1", "b-v1", "a"]


def test_attempts_of_a_job_without_a_log_are_above_those_in_storage() -> None:
    """Parts in a bucket are never replaced: an attempt with the number of a lost one could not write its own."""
    settings = JobSettings()
    assert first_job(None, settings, Commit(3, 7, 30)).attempt == 7
    assert first_job(None, settings, Commit(3, 7, 30), 9).attempt == 9
    earlier = Job(settings, commit=Commit(2, 5, 20), attempt=6)
    assert first_job(earlier, settings, Commit(3, 7, 30), 9).attempt == 9
    assert first_job(earlier, settings, Commit(2, 5, 20), 9) == earlier, "the job goes on"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--run-dir", RUN], "give --hosts 1 too"),
        (["--run-dir", RUN, "--hosts", "1", "--home", "gs://bucket/home"], "without --job-dir"),
        (["--run-dir", "run", "--hosts", "1", "--job-dir", "job"], "must go with a run directory in a bucket"),
        (["--hosts", "1", "--job-dir", "job"], "must go with a run directory in a bucket"),
        (["--run-dir", "s3://bucket/run", "--hosts", "1"], "must be a folder or in a bucket"),
    ],
)
def test_a_training_in_a_bucket_says_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["train", "ctr", *options]) == 2
    error = capsys.readouterr().err
    assert error.count("error:") == 1
    assert said in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.medium
def test_checkpoints_in_a_bucket_are_found_by_the_emulator_of_the_environment(
    gcs_server: GcsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket = gcs_server.bucket()
    for epochs in (1, 2):
        publish_all(gcs_server.home(bucket, "run"), checkpoint(epochs), 2, attempt=epochs)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{gcs_server.address}")
    given = f"gs://{bucket}/run"
    for command in (["ls", given], ["show", given], ["diff", given, "1", "2"], ["verify", given]):
        assert run(["ckpt", *command, "--json"]) == 0, capsys.readouterr().err
        assert json.loads(capsys.readouterr().out)
    assert run(["ckpt", "ls", f"gs://{bucket}/other"]) == 4
    assert "must hold a checkpoint" in capsys.readouterr().err
    assert run(["ckpt", "reshard", given, "--output", f"gs://{bucket}/new", "--hosts", "3"]) == 2
    assert "must be a local folder" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert run(["ckpt", "reshard", given, "--output", "new", "--hosts", "3"]) == 0, capsys.readouterr().err
    found = read_newest("new", on_skip=pytest.fail)
    assert found is not None
    assert_equal(found, checkpoint(2))


def test_holds_and_notices_find_the_job_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "home"
    assert run(["holds", "release", RUN, "--home", str(home)]) == 2
    assert "must be the folder of a warehouse" in capsys.readouterr().err
    assert not home.exists()
    home.mkdir()
    assert run(["holds", "release", RUN, "--home", str(home)]) == 4
    assert "this run has no job" in capsys.readouterr().err
    assert run(["preempt", RUN, "--home", str(home)]) == 4
    assert "this run has no job" in capsys.readouterr().err
    assert run(["preempt", RUN, "--home", "gs://bucket/home"]) == 2
    assert "the home must be a local folder" in capsys.readouterr().err
    assert run(["ps", "move", RUN, "--servers", "2", "--home", str(home)]) == 4
    assert "this run has no job" in capsys.readouterr().err
    files = hold(job_folder(RUN, str(home)))
    assert run(["holds", "ls", "--home", str(home), "--json"]) == 0
    assert [row["run"] for row in json.loads(capsys.readouterr().out)["holds"]] == [str(files.root)]
    assert run(["preempt", RUN, "--home", str(home)]) == 6, "no controller runs"
    assert "the controller of the job is not running" in capsys.readouterr().err
    assert run(["holds", "release", RUN, "--home", str(home), "--json"]) == 0
    assert REASON in capsys.readouterr().out


def test_a_job_of_a_fleet_keeps_its_bucket_and_its_job_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = str(tmp_path / "home")
    Path(home).mkdir()
    submit = ["jobs", "submit", "--home", home, "--json", "--", "train", "ctr", "--hosts", "1", "--run-dir", RUN]
    for more, expected in (
        ([], job_folder(RUN, home)),
        (["--job-dir", "/elsewhere"], Path("/elsewhere")),
        (["--job-dir", "own"], Path.cwd() / "own"),
    ):
        assert run([*submit, *more]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["run_dir"] == RUN
        stored = FleetStore(tmp_path / "home" / "fleet").find(str(document["number"]))
        assert job_files(stored).root == expected
