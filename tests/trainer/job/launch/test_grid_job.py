"""Jobs of hosts that share machines: they add dense gradients in two legs, and a lost host changes no bit."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trainer.job.launch.jobs import copy_begun, launch, make_warehouse, newest, run_killed, settings, supervise
from trainer.job.launch.run_comparison import run_differences
from trainer.planning.host_grid import GRID_BYTES
from trainer.scheduling.transitions import JobState

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.slow
OPTIONS = {"batch_rows": 64, "passes": 2, "top_mlp": (512, 512), "dense_optimizer": "adam", "keep_checkpoints": 99}
HOSTS = 4


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory):
    with make_warehouse(tmp_path_factory.mktemp("warehouse"), hours=2, rows=400) as opened:
        yield opened


def made(warehouse, folder, hosts=HOSTS, **options):
    return launch(warehouse, folder, settings(hosts, most_restarts=10), unit_rows=200, **{**OPTIONS, **options})


def run(folder, job):
    assert supervise(folder, job).run(job.newest).state is JobState.DONE


def dense_of(folder):
    arrays = newest(folder).arrays
    return {name: array for name, array in arrays.items() if name.startswith("dense/") and "optimizer" not in name}


@pytest.mark.parametrize("values", ["float32", "bf16"])
def test_a_lost_host_changes_no_bit(warehouse, tmp_path, values):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    run_killed(killed, made(warehouse, killed, machine_hosts=2, dense_values=values))
    run(whole, made(warehouse, whole, machine_hosts=2, dense_values=values))
    assert run_differences(killed, whole) == ()
    assert newest(killed).job.sum_order == ("2 x 2" if values == "float32" else "2 x 2 bf16")
    dense = dense_of(killed)
    assert sum(array.nbytes for array in dense.values()) >= GRID_BYTES


def test_hosts_on_other_machines_go_on_from_a_commit(warehouse, tmp_path):
    """With sums in another order, which its commits name, so weights are near and need not be equal."""
    legs, flat = tmp_path / "legs", tmp_path / "flat"
    run(legs, made(warehouse, legs, machine_hosts=2))
    copy_begun(legs, flat, epochs=1)
    run(flat, made(warehouse, flat))
    assert newest(legs).job.sum_order == "2 x 2"
    assert newest(flat).job.sum_order == ""
    other = dense_of(flat)
    for name, array in dense_of(legs).items():
        np.testing.assert_allclose(array, other[name], rtol=0.05, atol=0.01, err_msg=name)
