"""How a role finds its job: by the job's files, or by its controller when it has a token alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli.main import run
from tests.trainer.job.control.serving import serving
from trainer.errors import TornCheckpoint
from trainer.job.control.job_files import JobFiles
from trainer.job.launch import role_options
from trainer.job.launch.job_spec import FORMAT, JobSpec
from trainer.job.launch.role_options import RoleOptions
from trainer.scheduling.job import JobSettings
from trainer.wire.flight.client import RemoteError
from transforms.errors import HeadraceError, InputError, NotFound

TOKEN = "0123456789abcdef0123"


def write_spec(folder: Path, bucket_run: str = "gs://bucket/run") -> JobSpec:
    files = JobFiles(folder)
    spec = JobSpec(FORMAT, "small", JobSettings(release="test"), None, "gs://bucket/home", bucket_run)
    spec.write(files)
    files.put_token(TOKEN)
    return spec


def test_a_role_on_another_machine_gets_its_job_from_the_controller(tmp_path: Path) -> None:
    spec = write_spec(tmp_path / "controller")
    with serving(tmp_path / "controller") as found:
        options = RoleOptions(JobFiles(tmp_path / "role"), "h0", controller=found.service.address, token=TOKEN)
        job = options.find_job()
        assert (job.spec, job.token) == (spec, TOKEN)
        assert job.client.status().job == "small"
        assert (tmp_path / "role" / "job").is_dir()
        wrong = RoleOptions(JobFiles(tmp_path), "h0", controller=found.service.address, token="another-token-1234")
        with pytest.raises(InputError, match="the token must be that of the job"):
            wrong.find_job()


def test_a_role_of_this_machine_reads_the_files_of_the_job(tmp_path: Path) -> None:
    spec = write_spec(tmp_path)
    with serving(tmp_path) as found:
        for controller in (None, found.service.address):
            job = RoleOptions(JobFiles(tmp_path), "r0", controller=controller).find_job()
            assert (job.spec, job.token, job.client.status().job) == (spec, TOKEN, "small")


def test_a_job_on_several_machines_must_have_its_run_in_a_bucket(tmp_path: Path) -> None:
    write_spec(tmp_path, bucket_run="")
    with serving(tmp_path) as found, pytest.raises(InputError, match="must be in a bucket"):
        RoleOptions(JobFiles(tmp_path), "h0", controller=found.service.address, token=TOKEN).find_job()


def test_a_controller_without_the_document_and_one_with_another_are_errors(tmp_path: Path) -> None:
    JobFiles(tmp_path).put_token(TOKEN)
    with serving(tmp_path) as found:
        options = RoleOptions(JobFiles(tmp_path / "role"), "h0", controller=found.service.address, token=TOKEN)
        (tmp_path / "job" / "job.json").write_text('{"format": "another"}')
        with pytest.raises(TornCheckpoint, match="an object with format, job"):
            options.find_job()
        (tmp_path / "job" / "job.json").unlink()
        with pytest.raises(RemoteError):
            found.client.spec()


def test_a_role_waits_for_its_controller_only_so_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_spec(tmp_path)
    with serving(tmp_path) as found:
        address = found.service.address
    monkeypatch.setattr(role_options, "_WAIT_SECS", 0.01)
    seconds = iter(range(0, 10_000, 100))
    options = RoleOptions(JobFiles(tmp_path / "role"), "h0", controller=address, token=TOKEN)
    with pytest.raises(HeadraceError, match="a service must answer"):
        options.find_job(clock=lambda: float(next(seconds)))
    assert next(seconds) == 400


@pytest.mark.parametrize("role", ["reader", "host"])
@pytest.mark.parametrize(
    ("options", "status", "text"),
    [
        (["--token-file", "token"], 2, "must have the address of its controller"),
        (["--token-file", "missing", "--controller", "127.0.0.1:9"], 6, "the file of a token cannot be read"),
        (["--token-file", "short", "--controller", "127.0.0.1:9"], 2, "at least 16 characters"),
        ([], 4, "this run has no job"),
    ],
)
def test_wrong_options_of_a_role_are_one_error(
    role: str, options: list[str], status: int, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("token").write_text(f"{TOKEN}\n")
    Path("short").write_text("short\n")
    assert run(["role", role, "folder", *options]) == status
    error = capsys.readouterr().err
    assert error.count("error:") == 1
    assert text in " ".join(error.split())


def test_a_run_without_a_job_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        RoleOptions(JobFiles(tmp_path), "h0").find_job()
