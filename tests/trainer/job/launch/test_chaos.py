"""Faults: their schedule, what they cost, the links, and a job of real processes under them."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.job.launch.jobs import make_warehouse
from trainer.job.control.messages import JobStatus, MemberStatus, Progress
from trainer.job.launch.chaos.accounts import Accounts
from trainer.job.launch.chaos.links import Links
from trainer.job.launch.chaos.schedule import (
    ROLES,
    WIRE_KINDS,
    ChaosSettings,
    FaultKind,
    kinds_of,
    make_schedule,
    roles_of,
)
from trainer.job.launch.chaos.slow_disk import SlowDisk
from trainer.run.weights.saved_run import read_newest_run
from trainer.scheduling.events import Role, RoleKind
from trainer.scheduling.transitions import JobState
from trainer.wire.flight.addresses import Address
from transforms.errors import InputError


@settings(max_examples=scaled(50))
@given(st.integers(0, 2**32), st.sets(st.sampled_from(kinds_of(ROLES)), min_size=1))
def test_a_seed_gives_one_schedule_of_the_given_kinds(seed, kinds):
    chosen = ChaosSettings(seed, faults=40, mean_secs=2.0, kinds=tuple(sorted(kinds)))
    faults = make_schedule(chosen)
    assert faults == make_schedule(chosen)
    assert len(faults) == 40
    assert {fault.kind for fault in faults} <= kinds
    for fault in faults:
        assert fault.role in roles_of(fault.kind, ROLES)
        assert (fault.role in ROLES) == (fault.damage is None) == (fault.kind not in WIRE_KINDS)
        assert (fault.role, fault.kind) != ("controller", FaultKind.SLOW_DISK)
        assert (fault.hold_secs == 0) == (fault.kind in (FaultKind.KILL, FaultKind.PREEMPT, FaultKind.NEIGHBOUR))
        assert 0 <= fault.hold_secs <= 8.0
        assert fault.after_secs >= 0
        assert fault.target(["h1", "h0"]) in ("h0", "h1")


def test_all_roles_and_kinds_are_drawn():
    faults = make_schedule(ChaosSettings(7, faults=2000))
    drawn = {(fault.kind, fault.role) for fault in faults}
    assert drawn == {(kind, role) for kind in kinds_of(ROLES) for role in roles_of(kind, ROLES)}
    assert len(drawn) == 5 * len(ROLES) - 1 + 2 + len(WIRE_KINDS) * 4, (
        "no slow disk of the controller, no neighbour of a host"
    )


@pytest.mark.parametrize("wrong", [{"faults": 0}, {"mean_secs": 0.0}, {"mean_secs": float("nan")}, {"kinds": ()}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(InputError):
        replace(ChaosSettings(), **wrong)


def status(
    attempt: int, secs: float = 0.0, *, committed: int = 0, state: JobState = JobState.TRAINING, events: int = 10
) -> JobStatus:
    empty = JobStatus.__new__(JobStatus)
    host = MemberStatus(Role(RoleKind.HOST, "h0"), 1, "", 0.0, False, 0, Progress(attempt, 1, events), None)
    values = {
        "attempt": attempt,
        "attempt_secs": secs,
        "commit_attempt": committed,
        "state": state,
        "members": (host,),
    }
    for name, value in values.items():
        object.__setattr__(empty, name, value)
    return empty


def test_a_crash_costs_what_its_attempt_had_trained():
    accounts = Accounts()
    accounts.see(status(1, 4.0), 10.0)
    accounts.crashes.append(accounts.interruption("reader", 10.5))  # the attempt goes on, and is lost by the next one
    accounts.crashes.append(accounts.interruption("host", 11.0))
    accounts.crashes.append(accounts.interruption("host", 11.5))
    accounts.see(status(1, state=JobState.RESTARTING), 12.0)
    accounts.crashes.append(accounts.interruption("host", 12.5))
    accounts.see(status(2, 1.0), 14.0)
    accounts.crashes.append(accounts.interruption("controller", 15.0))
    accounts.see(status(3, 0.0, committed=2), 16.0)
    assert accounts.lost_secs() == [0.0, 5.0, 0.0, 0.0, 0.0]


def test_an_attempt_that_has_trained_nothing_has_nothing_to_lose():
    accounts = Accounts()
    accounts.see(status(1, 4.0, events=0), 10.0)
    assert not accounts.is_training
    assert accounts.interruption("host", 11.0).attempt == 0


def test_a_preempted_epoch_counts_if_it_is_committed_within_the_notice():
    accounts = Accounts()
    for attempt, after_secs in ((1, 5.0), (2, 31.0)):
        begun = 100.0 * attempt
        accounts.see(status(attempt, committed=attempt - 1), begun)
        accounts.notices.append(accounts.interruption("server" if attempt == 1 else "host", begun + 1))
        accounts.notices.append(accounts.interruption("reader", begun + 1))
        accounts.see(status(attempt, committed=attempt), begun + 1 + after_secs)
    assert accounts.preempted(30.0) == (2, 1)


@pytest.fixture
def echo():
    """A server that sends back what it gets."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    def answer(connection):
        with connection:
            try:
                while piece := connection.recv(1024):
                    connection.sendall(piece)
            except OSError:
                return

    threading.Thread(target=serve, daemon=True).start()
    yield Address("127.0.0.1", server.getsockname()[1])
    server.close()


def connect(address: Address) -> socket.socket:
    return socket.create_connection((address.host, address.port), timeout=30)


def test_a_cut_link_stops_bytes_and_a_healed_one_delivers_them(echo):
    with Links() as links:
        link = links.open(lambda: echo)
        with connect(link.address) as client:
            client.sendall(b"one")
            assert client.recv(10) == b"one"
            links.cut(link, is_reset=False)
            links.cut(link, is_reset=False)
            client.sendall(b"two")
            client.settimeout(0.2)
            with pytest.raises(TimeoutError):
                client.recv(10)
            links.heal(link)
            with pytest.raises(TimeoutError):
                client.recv(10)
            links.heal(link)
            client.settimeout(30)
            assert client.recv(10) == b"two"


def test_a_reset_link_ends_its_connections(echo):
    with Links() as links:
        link = links.open(lambda: echo)
        with connect(link.address) as client:
            client.sendall(b"one")
            assert client.recv(10) == b"one"
            links.cut(link, is_reset=True)
            with pytest.raises(ConnectionResetError):
                client.recv(10)
            links.heal(link)


def test_a_link_without_an_upstream_ends_the_connection():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with Links() as links, connect(links.open(lambda: Address("127.0.0.1", port)).address) as client:
        try:
            received = client.recv(10)
        except ConnectionResetError:
            received = b""
    assert received == b""


def test_a_disk_is_slow_between_two_calls(tmp_path):
    waits = []
    disk = SlowDisk(tmp_path / "job" / "h0.delay")
    disk.wait(waits.append)
    disk.set(0.25)
    disk.wait(waits.append)
    disk.file.write_text("1e9")
    disk.wait(waits.append)
    disk.file.write_text("nonsense")
    disk.wait(waits.append)
    disk.set(0.0)
    disk.wait(waits.append)
    assert waits == [0.25, 60.0]


def run_chaos(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headrace", "chaos", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)


@pytest.mark.slow
def test_chaos_runs_training_jobs_only(tmp_path):
    done = run_chaos("--", "evict", "--home", str(tmp_path))
    assert done.returncode == 2
    assert "chaos must be given a training job" in done.stderr
    done = run_chaos("--kinds", "kill,earthquake", "--", "train", "ctr", "--home", str(tmp_path))
    assert done.returncode == 2
    assert "earthquake" in done.stderr
    for option in (("--follow",), ("--least-hosts", "1"), ("--notice-file", "notice"), ("--plan", "auto"),
                   ("--embedding-workers", "1"), ("--export", "links")):  # fmt: skip
        done = run_chaos("--", "train", "ctr", *option, "--home", str(tmp_path))
        assert done.returncode == 2
        assert option[0] in done.stderr


@pytest.mark.slow
def test_a_job_under_faults_trains_each_event_once(tmp_path):
    """All kinds of faults over all roles; the user's own run directory stays as it is."""
    pytest.importorskip("tensorflow")
    make_warehouse(tmp_path, hours=3, rows=6000).close()
    options = tmp_path / "options.json"
    options.write_text(json.dumps({"batch_rows": 128, "passes": 8, "dense_learning_rate": 0.01, "initial_bias": 0.0}))
    done = run_chaos(
        *("--seed", "5", "--faults", "15", "--mean-secs", "0.8", "--compare", "--json"),
        *("--folder", str(tmp_path / "chaos"), "--", "train", "ctr", "--home", str(tmp_path / "home")),
        *("--config", str(options), "--hosts", "2", "--readers", "2", "--epoch-secs", "1.5", "--shuffle-events", "512"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["is_right"]
    assert found["differing"] == []
    assert found["trained"] == {"events": 18_000, "expected": 8, "lost": 0, "repeated": 0}
    assert found["applied_faults"] >= 5
    assert not (tmp_path / "home" / "runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["towers", "plan"])
def test_hosts_by_towers_or_by_a_plan_train_each_event_once_under_faults(tmp_path, kind):
    """By towers with sums inside machines, and batches in files, which hosts that are killed leave behind."""
    pytest.importorskip("tensorflow")
    make_warehouse(tmp_path, hours=3, rows=6000).close()
    options, made = tmp_path / "options.json", tmp_path / "made.json"
    options.write_text(
        json.dumps(
            {"batch_rows": 128, "passes": 4, "deep": True, "linear": False, "top_mlp": [8], "dense_learning_rate": 0.01}
        )
    )
    home = ("--home", str(tmp_path / "home"))
    make = ("towers", "make", "ctr", "--towers", "2", "--strategy", "strided") if kind == "towers" else ("plan", "make", "ctr", "--topology", "cpu:2")  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *make, "--output", str(made), *home],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    more = ("--towers", str(made), "--tower-sums", "--batch-files", "100MB") if kind == "towers" else ("--plan", str(made))  # fmt: skip
    done = run_chaos(
        *("--seed", "3", "--faults", "8", "--mean-secs", "1.0", "--compare", "--json"),
        *("--folder", str(tmp_path / "chaos"), "--", "train", "ctr", *home, "--config", str(options)),
        *("--hosts", "2", "--readers", "1", "--epoch-secs", "1.5", *more),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["is_right"]
    assert found["differing"] == []
    assert found["applied_faults"] >= 3
    saved = read_newest_run(str(tmp_path / "chaos" / "disturbed"), on_skip=pytest.fail)
    assert saved.partition is not None
    assert saved.partition.cores == 2
    assert saved.partition.tables
