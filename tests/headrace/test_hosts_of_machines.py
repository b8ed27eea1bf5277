"""Hosts that share machines: what the command refuses, what a job is given, and how a training screen says how they add."""

from __future__ import annotations

import pytest

from headrace.cli.options.servers import ServerOptions
from headrace.cli.planned_training import towers_of_training
from headrace.cli.train_options.hosts import HostOptions
from headrace.cli.train_options.training import TrainOptions
from headrace.cli.training_jobs import job_options
from headrace.screens.dense_sums import dense_sums_text, sum_order_text
from trainer.errors import ConfigError
from trainer.planning.host_grid import SumFigures
from transforms.errors import InputError


def options(servers=None, **hosts):
    return TrainOptions("model", hosts=HostOptions(**hosts), servers=servers or ServerOptions())


@pytest.mark.parametrize(
    ("given", "problem", "next_step"),
    [
        ({"hosts_per_machine": 2}, "hosts that share a machine must be two or more", "give --hosts"),
        ({"hosts": 1, "hosts_per_machine": 2}, "hosts that share a machine must be two or more", "give --hosts"),
        ({"hosts": 4, "tower_sums": True}, "sums of rows must be those of towers", "give --towers"),
        (
            {"hosts": 4, "hosts_per_machine": 2, "least_hosts": 3},
            "hosts that share machines must all be there",
            "leave --least-hosts out",
        ),
        ({"dense_values": "bf16"}, "rounded dense gradients must be those of several hosts", "give --hosts"),
    ],
)
def test_combinations_are_refused(given, problem, next_step):
    with pytest.raises(InputError, match=problem) as caught:
        options(**given).check_combinations({})
    assert next_step in caught.value.next_step


@pytest.mark.parametrize(
    "given",
    [
        {"hosts": 4, "hosts_per_machine": 2},
        {"hosts": 4, "hosts_per_machine": 2, "least_hosts": 4, "dense_values": "bf16"},
        {"hosts": 4, "hosts_per_machine": 2, "servers": ServerOptions(servers="2")},
        {"hosts": 4, "dense_values": "bf16"},
        {"hosts_per_machine": 1, "dense_values": "float32"},
    ],
)
def test_hosts_of_machines_need_no_towers(given):
    options(**given).check_combinations({})


def test_values_of_dense_gradients_have_a_known_name():
    with pytest.raises(InputError, match="--dense-values must be a known encoding") as caught:
        options(hosts=2, dense_values="fp16")
    assert caught.value.allowed == "float32, bf16"


def test_a_job_has_the_hosts_of_its_machines_and_its_encoding():
    given = options(hosts=4, hosts_per_machine=2, dense_values="bf16")
    found = towers_of_training("", given.hosts)
    assert not found
    assert found.machine_hosts == 2
    assert job_options(given).dense_values == "bf16"
    assert job_options(options(hosts=4)).dense_values == "float32"
    assert towers_of_training("", None).machine_hosts == 1


@pytest.mark.parametrize("phases", [{"hosts": 4}, {"hosts": 6, "caught_up_hosts": 4, "follow": True}])
def test_machines_that_hosts_do_not_fill_are_refused(phases):
    with pytest.raises(ConfigError, match="the hosts of a machine must divide the hosts of the job"):
        towers_of_training("", HostOptions(**phases, hosts_per_machine=3))


def test_a_phase_may_have_one_machine():
    hosts = HostOptions(hosts=6, caught_up_hosts=1, follow=True, hosts_per_machine=3)
    assert towers_of_training("", hosts).machine_hosts == 3


@pytest.mark.parametrize(
    ("order", "text"),
    [
        ("2 x 4", "in two legs, 2 x 4 hosts"),
        ("bf16", "rounded to bfloat16"),
        ("2 x 4 bf16", "in two legs, 2 x 4 hosts, rounded to bfloat16"),
    ],
)
def test_a_commit_says_in_which_order_hosts_added(order, text):
    assert sum_order_text(order) == text


@pytest.mark.parametrize(
    ("figures", "text"),
    [
        (
            SumFigures(2, 4, 1, 0, 3 << 20, 1 << 20),
            "in two legs: 1.0 MiB a step between 2 machines of 4 hosts, 3.0 MiB inside them",
        ),
        (
            SumFigures(2, 4, 1, 1, 3 << 20, 1 << 20),
            "in two legs: 1.0 MiB a step between 2 machines of 4 hosts, rounded to bfloat16, 3.0 MiB inside them",
        ),
        (
            SumFigures(2, 2, 0, 0, 1024, 2048),
            "without legs, the model is small: 2.0 KiB a step between 2 machines of 2 hosts, 1.0 KiB inside them",
        ),
        (SumFigures(4, 1, 0, 1, 0, 2048), "2.0 KiB a step between 4 hosts, rounded to bfloat16"),
    ],
)
def test_a_screen_says_how_hosts_add(figures, text):
    assert dense_sums_text(figures) == text
