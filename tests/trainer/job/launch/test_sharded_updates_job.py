"""Jobs whose hosts update segments of the dense weights have the commits of jobs whose hosts update all of them."""

from __future__ import annotations

import shutil
import sys

import pytest

from headrace.cli.training_jobs import role_command
from tests.support.parameter_servers import thread_servers
from tests.trainer.job.launch.jobs import launch, make_warehouse, newest, settings
from trainer.job.control.job_files import JobFiles
from trainer.job.launch.job_spec import ServersSpec
from trainer.job.launch.run_comparison import run_differences
from trainer.job.launch.supervisor import Supervisor, SupervisorSettings
from trainer.scheduling.transitions import JobState

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.slow
SCHEDULE = {"warmup_steps": 4, "decay": "cosine", "decay_steps": 60}
OPTIONS = {"batch_rows": 64, "passes": 2, "top_mlp": (40, 24, 8), "learning_rate_schedule": SCHEDULE}


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory):
    with make_warehouse(tmp_path_factory.mktemp("warehouse"), hours=2, rows=1500) as opened:
        yield opened


def run(
    warehouse, folder, hosts, *, in_segments, on_status=lambda supervisor, status: None, epoch_secs=None, **options
):
    """Run a job to its end, or until ``on_status`` stops it."""

    def command(kind, name, arguments):
        plain = role_command(str(folder), kind, name, arguments)
        own = in_segments and kind == "host"
        return [sys.executable, "-m", "tests.trainer.job.launch.segment_host", *plain[5:]] if own else plain

    of = settings(hosts, epoch_secs=epoch_secs, most_restarts=10)
    job = launch(warehouse, folder, of, unit_rows=400, **{**OPTIONS, **options})
    looks = SupervisorSettings(look_secs=0.1)
    supervisor = Supervisor(
        JobFiles(folder), job.spec.job, command, lambda status: on_status(supervisor, status), settings=looks
    )
    found = supervisor.run(job.newest)
    assert (folder / "in-segments").exists() == in_segments
    return found


@pytest.mark.parametrize(
    ("hosts", "options"),
    [(2, {"staleness": 2}), pytest.param(3, {"linear": True, "activation": "relu"}, marks=pytest.mark.soak)],
)
def test_a_lost_host_changes_no_bit(warehouse, tmp_path, hosts, options):
    killed = []

    def kill(supervisor, status):
        if status.commit_epochs >= 1 and not killed:
            host = next(one for one in supervisor.running().values() if one.kind == "host")
            host.process.kill()
            killed.append(host)

    found = run(warehouse, tmp_path / "segments", hosts, in_segments=True, on_status=kill, **options)
    assert found.state is JobState.DONE
    assert killed
    run(warehouse, tmp_path / "whole", hosts, in_segments=False, **options)
    assert run_differences(tmp_path / "segments", tmp_path / "whole") == ()
    slots = [name for name in newest(tmp_path / "segments").arrays if name.startswith("dense/optimizer/")]
    assert len(slots) > 2, "commits have whole slots"


@pytest.mark.parametrize("begins_in_segments", [pytest.param(True, marks=pytest.mark.soak), False])
def test_other_numbers_of_hosts_go_on_from_an_early_end(warehouse, tmp_path, begins_in_segments):
    """Three hosts end within an epoch; two go on with the same bits, in segments or not."""

    def stop(supervisor, status):
        if status.commit_epochs == 2:
            supervisor.stop()

    begun = tmp_path / "begun"
    found = run(warehouse, begun, 3, in_segments=begins_in_segments, on_status=stop, epoch_secs=0.4)
    assert found.state is JobState.STOPPED
    for in_segments in (True, False):
        folder = tmp_path / str(in_segments)
        shutil.copytree(begun, folder)
        (folder / "in-segments").unlink(missing_ok=True)
        assert run(warehouse, folder, 2, in_segments=in_segments).state is JobState.DONE
    assert run_differences(tmp_path / "True", tmp_path / "False") == ()


def test_hosts_over_servers_update_their_segments(warehouse, tmp_path):
    options = {"staleness": 2, "embedding_weight_decay": 0.01}
    with thread_servers(2) as servers:
        for number, in_segments in enumerate((True, False), start=1):
            on = ServersSpec(tuple(str(one.address) for one in servers), run=number)
            folder = tmp_path / str(in_segments)
            assert run(warehouse, folder, 2, in_segments=in_segments, servers=on, **options).state is JobState.DONE
    assert run_differences(tmp_path / "True", tmp_path / "False") == ()
