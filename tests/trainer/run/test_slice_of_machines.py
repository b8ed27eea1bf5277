"""A slice of several machines: its devices are CPUs of TensorFlow servers in processes of their own, which one process drives."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.support.processes import PATIENCE_SECS
from tests.support.slice_servers import slice_servers
from tests.trainer.run.test_chaos import run_to_the_end, start
from trainer.checkpoints.checkpoint import checkpoints_dir, read_newest
from trainer.errors import SliceLost

pytest.importorskip("tensorflow")

OPTIONS = {"engine": "tpu", "linear": True, "partitions": 2, "replicas": 4, "passes": 2}


def program(**options):
    return "tests.trainer.synthetic", json.dumps(OPTIONS | options)


def assert_equal_runs(one, other) -> None:
    first, second = (read_newest(folder, on_skip=pytest.fail) for folder in (one, other))
    assert first.digest == second.digest


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"staleness": 1}, {"servers": 1, "staleness": 2, "partitions": 1}], ids=["tables", "dense"]
)
def test_two_machines_train_the_bits_of_one(tmp_path, options):
    """With tables in the slice, which both machines have a part of; and with the dense part alone, beside a parameter server."""
    expected = run_to_the_end(tmp_path / "one", program(**options))
    with slice_servers(tmp_path) as machines:
        found = run_to_the_end(tmp_path / "two", program(**options, slice_servers=[one.address for one in machines]))
    assert found["history"] == expected["history"]
    if "servers" not in options:  # whose shards have names of their own
        assert_equal_runs(tmp_path / "two", tmp_path / "one")


@pytest.mark.slow
def test_a_machine_that_is_killed_ends_the_run_which_goes_on_with_equal_bits(tmp_path):
    run_to_the_end(tmp_path / "one", program(partitions=4))
    with slice_servers(tmp_path) as machines:
        on_both = program(partitions=4, slice_servers=[one.address for one in machines])
        process = start(tmp_path / "two", program=on_both)
        for _ in process.stdout:
            if checkpoints_dir(tmp_path / "two").exists() and read_newest(tmp_path / "two", on_skip=pytest.fail):
                machines[1].kill()
                break
        process.communicate(timeout=300)
        assert process.returncode in (1, SliceLost.exit_status)
        machines[1].start()
        machines[1].wait()
        report = run_to_the_end(tmp_path / "two", on_both)
    assert report["resumed_from"]
    assert_equal_runs(tmp_path / "two", tmp_path / "one")


@pytest.mark.medium
def test_sigterm_ends_a_server_that_a_client_of_tpus_has_connected_to(tmp_path):
    """TensorFlow then has a handler of its own for the signal. There are no TPUs here, so the client ends with an error."""
    code = "import sys\nfrom trainer.tables.tpu.connected_slice import connect\nconnect(sys.argv[1], None, print)"
    with slice_servers(tmp_path, machines=1, devices=1) as (machine,):
        command = [sys.executable, "-c", code, machine.address]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
        assert "TPUs not found in the cluster" in done.stderr
        machine.process.terminate()
        assert machine.process.wait(PATIENCE_SECS) == 143


@pytest.mark.slow
def test_the_programs_of_a_slice_run_on_its_machines(tmp_path):
    """A loop of 64 steps in one call, in which each machine reads its own inputs; values of variables that cross in parts."""
    with slice_servers(tmp_path) as machines:
        command = [sys.executable, "-m", "tests.trainer.run.remote_loop", *(one.address for one in machines)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["devices"] == [f"/job:worker/replica:0/task:{k // 2}/device:CPU:{k % 2}" for k in range(4)]
    assert found["sums"] == found["expected"]
    assert found["crossed"] is True
