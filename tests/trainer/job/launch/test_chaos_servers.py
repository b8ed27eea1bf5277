"""Faults of parameter servers: their schedule, what is done to real processes, and a job that is trained under them."""

from __future__ import annotations

import json
import socket
import time
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from headrace.cli.options.servers import server_command
from tests.support.processes import PATIENCE_SECS, wait_until
from tests.trainer.job.launch.jobs import make_warehouse
from tests.trainer.job.launch.test_chaos import connect, echo, run_chaos, status  # noqa: F401
from trainer.job.control.job_files import JobFiles
from trainer.job.launch.chaos.accounts import Accounts
from trainer.job.launch.chaos.disturbed_servers import DisturbedServers, child_of
from trainer.job.launch.chaos.limited_memory import may_limit_memory
from trainer.job.launch.chaos.links import Links
from trainer.job.launch.chaos.schedule import (
    LASTING,
    ROLES,
    SERVER,
    WIRE_KINDS,
    WORKER,
    ChaosSettings,
    Fault,
    FaultKind,
    Side,
    kinds_of,
    make_schedule,
    pairs_of,
)
from trainer.job.launch.chaos.wire_damage import DamageKind, DamagePoint, Direction, single_damage
from trainer.job.launch.local_servers import LocalServers
from trainer.scheduling.transitions import JobState
from trainer.servers.server_status import read_status
from trainer.wire.flight.addresses import Address
from transforms.errors import InputError

WITH_SERVERS = (*ROLES, SERVER)
#: All that would be chosen from the data, so that no candidate is tried.
OPTIONS = {"batch_rows": 128, "dim": 4, "deep": True, "linear": True, "bottom_mlp": [8], "top_mlp": [8], "network": "dlrm", "passes": 4,
           "dense_learning_rate": 0.003, "embedding_learning_rate": 0.03, "linear_learning_rate": 0.1, "initial_bias": 0.0,
           "dense_scaling": {}}  # fmt: skip
OF_SERVERS = {FaultKind.KILL_KEEPER, FaultKind.SLOW_LINK, FaultKind.LOSE_MACHINE, FaultKind.FULL_MEMORY}
OF_HOSTS = set(FaultKind) - OF_SERVERS - set(WIRE_KINDS) - {FaultKind.NEIGHBOUR}


def test_a_schedule_with_servers_draws_all_their_kinds():
    faults = make_schedule(ChaosSettings(3, faults=2000, kinds=kinds_of(WITH_SERVERS), roles=WITH_SERVERS))
    drawn = {(fault.kind, fault.role) for fault in faults}
    assert {kind for kind, role in drawn if role == SERVER} == set(FaultKind) - {FaultKind.SLOW_DISK} - set(WIRE_KINDS)
    assert {role for kind, role in drawn if kind in OF_SERVERS} == {SERVER}
    assert {kind for kind, role in drawn if role == "host"} == OF_HOSTS
    assert {(kind, pair) for kind, pair in drawn if kind in WIRE_KINDS} == set(
        product(WIRE_KINDS, pairs_of(WITH_SERVERS))
    )
    assert all((fault.hold_secs > 0) == (fault.kind in LASTING) for fault in faults)


def test_damage_of_bytes_is_drawn_between_the_pairs_of_a_job():
    assert pairs_of(ROLES, hosts=1) == ("host-controller", "reader-controller", "host-reader")
    assert pairs_of(ROLES, hosts=2) == ("host-controller", "reader-controller", "host-reader", "host-host")
    assert pairs_of((*WITH_SERVERS, WORKER))[-3:] == ("host-server", "host-worker", "worker-server")
    settings = ChaosSettings(5, faults=500, kinds=tuple(WIRE_KINDS), hosts=1)
    faults = make_schedule(settings)
    assert faults == make_schedule(settings)
    assert {fault.role for fault in faults} == set(pairs_of(ROLES, hosts=1))
    assert {fault.direction for fault in faults} == set(Direction)
    assert all(fault.damage is not None and fault.damage.kind == WIRE_KINDS[fault.kind] for fault in faults)
    distances = [fault.damage.at_byte for fault in faults if fault.damage is not None]
    assert min(distances) == 0
    assert max(distances) > 1 << 15
    assert max(one.damage.at_byte for one in faults if one.damage and one.role.endswith("controller")) < 1 << 11


def test_one_damage_of_a_link_is_delivered_once_and_what_it_ends_is_counted(echo: Address):  # noqa: F811
    with Links() as links:
        link = links.open(lambda: echo)
        with connect(link.address) as one, connect(link.address) as other:
            links.damage(link, single_damage(DamagePoint(2, DamageKind.FLIP), Direction.REQUESTS), is_once=True)
            found = set()
            for client in (one, other):
                client.sendall(b"abcd")
                found.add(received(client, 4))
            assert found == {b"abbd", b"abcd"}
            one.sendall(b"abcd")
            assert received(one, 4) == b"abcd"
            assert (link.damages, link.endings) == ({DamageKind.FLIP: 1}, {})
        wait_until(lambda: link.endings == {DamageKind.FLIP: 1}, "the damaged connection is counted", {})


def received(client: socket.socket, count: int) -> bytes:
    content = b""
    while len(content) < count:
        content += client.recv(count - len(content))
    return content


def test_a_job_without_servers_has_no_kind_of_theirs():
    assert set(kinds_of(ROLES)) == set(FaultKind) - OF_SERVERS == set(ChaosSettings().kinds)
    with pytest.raises(InputError, match="needs a role that the job has") as found:
        replace(ChaosSettings(), kinds=(FaultKind.LOSE_MACHINE,))
    assert found.value.next_step == "give --servers to the training"


def test_a_lost_machine_costs_what_its_attempt_had_trained():
    accounts = Accounts()
    accounts.see(status(1, 4.0), 10.0)
    accounts.crashes.append(accounts.interruption(SERVER, 10.5))  # another process has its rows
    accounts.crashes.append(accounts.interruption(SERVER, 11.0, ends_attempt=True))
    accounts.crashes.append(accounts.interruption("host", 11.5))
    accounts.see(status(1, state=JobState.RESTARTING), 12.0)
    accounts.see(status(2, 1.0), 14.0)
    assert accounts.lost_secs() == [0.0, 5.0, 0.0]


def test_a_slow_link_delays_both_ways_until_its_end(echo: Address):  # noqa: F811
    with Links() as links:
        link = links.open(lambda: echo)
        with connect(link.address) as client:
            links.delay(link, 0.15)
            began = time.monotonic()
            client.sendall(b"one")
            assert client.recv(10) == b"one"
            assert time.monotonic() - began >= 0.3
            links.delay(link, 0.0)
            client.sendall(b"two")
            assert client.recv(10) == b"two"


def fault(kind: FaultKind) -> Fault:
    return Fault(0.0, kind, SERVER, 0.0, 60.0, Side.ALL, is_reset=False)


class Disturbed:
    """Two servers, each with a file beside its rows that a lost machine loses."""

    def __init__(self, servers: LocalServers, links: Links) -> None:
        self.servers, self.disturbed = servers, DisturbedServers(servers, links)
        for one in servers._servers:
            (one.memory / "kept").touch()

    def keeper(self) -> int:
        return self.servers.processes.get("s0", 0)

    def kept(self) -> bool:
        return (self.servers._servers[0].memory / "kept").exists()

    def answers(self) -> bool:
        """Through its link."""
        read_status(self.disturbed.addresses[0], token=self.servers.token, patience_secs=PATIENCE_SECS)
        return True


@pytest.fixture
def disturbed(tmp_path: Path):
    files = JobFiles(tmp_path)
    files.make_token()
    with Links() as links, LocalServers(2, server_command, token_file=files.token, logs=tmp_path / "logs") as servers:
        found = Disturbed(servers, links)
        wait_until(lambda: found.disturbed.running() == ("s0", "s1"), "the first processes answer", {})
        yield found


@pytest.mark.slow
def test_a_killed_server_and_its_keeper_have_their_memory_and_a_lost_machine_has_not(disturbed: Disturbed):
    for kind in (FaultKind.KILL, FaultKind.PREEMPT, FaultKind.KILL_KEEPER, FaultKind.LOSE_MACHINE):
        keeper, child = disturbed.keeper(), child_of(disturbed.keeper())
        assert disturbed.disturbed.apply(fault(kind), "s0") is None
        wait_until(lambda: child_of(disturbed.keeper()) not in (0, child), "the next process answers", {})  # noqa: B023
        assert (disturbed.keeper() == keeper) == (kind is FaultKind.KILL)
        assert disturbed.answers()
        assert disturbed.kept() == (kind is not FaultKind.LOSE_MACHINE)


@pytest.mark.slow
def test_a_paused_and_a_cut_off_server_answer_when_their_faults_end(disturbed: Disturbed):
    for kind in (FaultKind.PAUSE, FaultKind.PARTITION, FaultKind.SLOW_LINK):
        end = disturbed.disturbed.apply(fault(kind), "s0")
        if kind is FaultKind.PAUSE:
            stat = Path(f"/proc/{child_of(disturbed.keeper())}/stat")
            wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "it is stopped", {})  # noqa: B023
        assert end is not None
        end()
        assert disturbed.answers()
    with pytest.raises(OSError, match="s9"):  # it has ended
        disturbed.disturbed.apply(fault(FaultKind.KILL), "s9")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--servers", "ps-0:7000"), "chaos starts the parameter servers that it disturbs: give their number"),
        (("--servers", "0"), "--servers must be a number of processes, or addresses"),
        (
            ("--servers", "2", "--server-updates", "each"),
            "--compare needs updates in a fixed order",
        ),
        (("--wire-ids", "unique"), "--wire-ids must go with --servers"),
    ],
)
def test_servers_that_chaos_cannot_disturb_are_refused(tmp_path: Path, options: tuple[str, ...], problem: str):
    done = run_chaos("--compare", "--", "train", "ctr", *options, "--home", str(tmp_path))
    assert done.returncode == 2
    assert problem in done.stderr


def test_kinds_of_servers_need_servers(tmp_path: Path):
    done = run_chaos("--kinds", "slow-link", "--", "train", "ctr", "--home", str(tmp_path))
    assert done.returncode == 2
    assert "a kind of fault needs a role that the job has" in done.stderr


@pytest.mark.slow
def test_a_job_on_disturbed_servers_trains_each_event_once(tmp_path: Path):
    """All kinds of faults over all roles and two servers."""
    pytest.importorskip("tensorflow")
    make_warehouse(tmp_path, hours=3, rows=6000).close()
    options = tmp_path / "options.json"
    options.write_text(json.dumps(OPTIONS))
    done = run_chaos(
        *("--seed", "2", "--faults", "14", "--mean-secs", "0.8", "--compare", "--json"),
        *("--folder", str(tmp_path / "chaos"), "--", "train", "ctr", "--home", str(tmp_path / "home")),
        *("--config", str(options), "--hosts", "2", "--readers", "1", "--servers", "2", "--epoch-secs", "1.5"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["is_right"]
    assert found["differing"] == []
    assert found["servers"] == 2
    assert found["trained"] == {"events": 18_000, "expected": 4, "lost": 0, "repeated": 0}
    assert found["applied_faults"] >= 5
    assert any(name.endswith(SERVER) for name in found["faults"])


@pytest.mark.slow
@pytest.mark.parametrize(("updates", "staleness"), [("summed", 0), ("each", 2)])
def test_one_host_over_disturbed_workers_trains_each_event_once(tmp_path: Path, updates, staleness):
    """All kinds of faults over all roles: the host, its three workers and two servers among them.

    Lookups that run ahead end with an epoch, which faults end early: bits are compared without them.
    """
    pytest.importorskip("tensorflow")
    make_warehouse(tmp_path, hours=3, rows=6000).close()
    options = tmp_path / "options.json"
    options.write_text(json.dumps({**OPTIONS, "staleness": staleness}))
    done = run_chaos(
        *("--seed", "5", "--faults", "16", "--mean-secs", "0.6", *(("--compare",) if updates == "summed" else ()), "--json"),
        *("--folder", str(tmp_path / "chaos"), "--", "train", "ctr", "--home", str(tmp_path / "home")),
        *("--config", str(options), "--hosts", "1", "--readers", "1", "--servers", "2", "--embedding-workers", "3"),
        *("--epoch-secs", "1.5", "--server-updates", updates),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["is_right"]
    assert found["differing"] == ([] if updates == "summed" else None)
    assert (found["servers"], found["workers"]) == (2, 3)
    assert found["trained"] == {"events": 18_000, "expected": 4, "lost": 0, "repeated": 0}
    assert found["applied_faults"] >= 5
    assert any(name.endswith(WORKER) for name in found["faults"])


@pytest.mark.slow
def test_damaged_bytes_full_memory_and_neighbours_change_no_bit(tmp_path: Path):
    """Between all pairs of roles, of hosts, servers and an embedding worker; each event is trained once."""
    pytest.importorskip("tensorflow")
    make_warehouse(tmp_path, hours=3, rows=6000).close()
    options = tmp_path / "options.json"
    options.write_text(json.dumps(OPTIONS))
    kinds = [*WIRE_KINDS, FaultKind.NEIGHBOUR, *([FaultKind.FULL_MEMORY] if may_limit_memory() else [])]
    done = run_chaos(
        *("--seed", "3", "--faults", "40", "--mean-secs", "0.3", "--kinds", ",".join(kinds), "--compare", "--json"),
        *("--folder", str(tmp_path / "chaos"), "--", "train", "ctr", "--home", str(tmp_path / "home")),
        *("--config", str(options), "--hosts", "2", "--readers", "1", "--servers", "2", "--embedding-workers", "1"),
        *("--epoch-secs", "1.5"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["is_right"]
    assert found["differing"] == []
    assert found["trained"] == {"events": 18_000, "expected": 4, "lost": 0, "repeated": 0}
    assert (found["servers"], found["workers"], found["let_in"]) == (2, 1, [])
    assert found["delivered_damages"] >= 3
    assert found["delivered_damages"] == sum(one["delivered"] for one in found["damages"].values())
    damaged = {name for name, one in found["damages"].items() if one["delivered"]}
    assert damaged <= {f"{kind} {pair}" for kind in WIRE_KINDS for pair in pairs_of((*WITH_SERVERS, WORKER))}
