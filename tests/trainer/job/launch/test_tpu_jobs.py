"""A job whose one host trains on the TPUs of its machine: real processes, emulated TPUs."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from headrace.cli.training_jobs import role_command
from tests.support.parameter_servers import thread_servers
from tests.support.slice_servers import slice_servers
from tests.trainer.job.launch.jobs import launch, make_warehouse, newest, run_job, settings
from tests.trainer.job.launch.test_preempted_servers import Preemption
from tests.trainer.run.test_tpu_training import assert_close
from trainer.job.control.job_files import JobFiles
from trainer.job.launch.job_spec import ServersSpec
from trainer.job.launch.run_comparison import run_differences
from trainer.job.launch.slice_server import notice_of_host
from trainer.job.launch.supervisor import Supervisor, SupervisorSettings
from trainer.scheduling.holds import ErrorClass
from trainer.scheduling.transitions import JobState
from trainer.wire.flight.addresses import Address

pytest.importorskip("tensorflow")
OPTIONS = {"batch_rows": 64, "passes": 2, "linear": True, "staleness": 1}


def run_on_slices(warehouse, folder, hosts=1, *, machines=(), on_status=lambda status: None, **launched):
    """Run the job with a slice of emulated TPUs for each host, or with one on ``machines``, TensorFlow servers; its end."""
    tpu = ["--tpu", ",".join(one.address for one in machines)] if machines else []

    def command(kind, name, arguments):
        plain = role_command(str(folder), kind, name, arguments)
        if kind != "host":
            return plain
        return [sys.executable, "-m", "tests.trainer.job.launch.emulated_host", *plain[5:], *tpu]

    job = launch(warehouse, folder, settings(hosts=hosts), **launched)
    looks = SupervisorSettings(look_secs=0.1)
    supervisor = Supervisor(JobFiles(folder), job.spec.job, command, settings=looks, on_status=on_status)
    assert supervisor.run(job.newest).state is JobState.DONE


def assert_same_run(tmp_path) -> None:
    """The run on TPUs has trained the events of that on CPUs, to its weights up to the last digits of float sums."""
    one, other = (newest(tmp_path / name) for name in ("tpu", "cpu"))
    for name in ("ledger", "step", "position", "identity"):
        assert one.document[name] == other.document[name], name
    assert_close(tmp_path / "tpu", tmp_path / "cpu")


@pytest.mark.slow
def test_a_host_on_tpus_trains_what_a_host_on_its_cpu_trains(tmp_path):
    with make_warehouse(tmp_path / "warehouse", hours=2, rows=200) as warehouse:
        run_job(warehouse, tmp_path / "cpu", settings(), **OPTIONS)
        run_on_slices(warehouse, tmp_path / "tpu", **OPTIONS)
    assert_same_run(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("hosts", "staleness"), [(1, 3), (2, 2), (3, 2)])
def test_hosts_whose_tables_are_on_servers_train_the_same_on_a_slice_each(tmp_path, hosts, staleness):
    """Two devices of a host share its events; dense gradients leave the slices of several hosts and are summed over them."""
    options = {**OPTIONS, "staleness": staleness, "embedding_weight_decay": 0.01}
    with make_warehouse(tmp_path / "warehouse", hours=2, rows=200) as warehouse, thread_servers(2) as servers:
        on = ServersSpec(tuple(str(one.address) for one in servers), run=1)
        run_job(warehouse, tmp_path / "cpu", settings(hosts=hosts), servers=on, **options)
        run_on_slices(warehouse, tmp_path / "tpu", hosts, servers=replace(on, run=2), **options)
    assert_same_run(tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_machines_of_a_slice_are_killed_and_preempted_and_no_bit_changes(tmp_path):
    """One is killed after a commit: its host ends, another one begins when it is back. Then the host gets a notice of a machine, and leaves after a commit."""
    options = {**OPTIONS, "passes": 4}
    with (
        make_warehouse(tmp_path / "warehouse", hours=1, rows=200) as warehouse,
        slice_servers(tmp_path, devices=1) as machines,
    ):
        run_on_slices(warehouse, tmp_path / "calm", **options)
        files = JobFiles(tmp_path / "run")

        def lose() -> None:
            machines[1].kill()
            machines[1].start()

        def notify() -> None:
            address = f"{files.find_controller()}"
            notice_of_host("h0", Address.parse(address), files.read_token())(120.0)

        steps = Preemption((commits(1), lose), (commits(2), notify))
        run_on_slices(warehouse, tmp_path / "run", machines=machines, on_status=steps, **options)
        assert steps.is_over
    assert JobState.RESTARTING in steps.states, "the lost machine ended an attempt"
    one, other = (newest(tmp_path / name) for name in ("run", "calm"))
    assert one.document["ledger"] == other.document["ledger"]
    assert run_differences(tmp_path / "run", tmp_path / "calm") == ()


def commits(count):
    """Whether a job trains after so many commits."""
    return lambda status: status.state is JobState.TRAINING and status.commit_epochs >= count


@pytest.mark.medium
def test_a_host_without_tpus_holds_its_job(tmp_path):
    def command(kind, name, arguments):
        plain = role_command(str(tmp_path / "run"), kind, name, arguments)
        return [*plain, "--tpu", "local"] if kind == "host" else plain

    with make_warehouse(tmp_path / "warehouse", hours=1, rows=100) as warehouse:
        job = launch(warehouse, tmp_path / "run", settings(), batch_rows=64)
        looks = SupervisorSettings(look_secs=0.1)
        status = Supervisor(JobFiles(tmp_path / "run"), job.spec.job, command, settings=looks).run(job.newest)
    assert status.hold is not None
    assert status.hold.error_class is ErrorClass.PERMANENT
    assert status.hold.reason.startswith("ConfigError: the tpu engine must reach a TPU")
    assert status.hold.role == "host h0"
