"""``headrace train --servers``: the bits of training in one process, with its tables on parameter servers."""

from __future__ import annotations

import json
import os
import signal
import threading
from contextlib import closing
from pathlib import Path
from random import Random

import numpy as np
import pytest

from headrace.cli.options.servers import ServerOptions, server_command
from tests.support.host_steps import check_hosts_train
from tests.support.parameter_servers import ThreadServer, thread_servers
from trainer.checkpoints.table_sections import section_of
from trainer.job.launch.local_servers import LocalServers
from trainer.run.weights.saved_run import read_newest_run

_BETWEEN_KILLS_SECS = 0.7
OPTIONS = {"deep": True, "linear": True, "passes": 1, "batch_rows": 64, "embedding_learning_rate": 0.01, "dense_learning_rate": 0.003,
           "linear_learning_rate": 0.05, "network": "dlrm", "deterministic": False}  # fmt: skip


@pytest.fixture
def served(submitted, tmp_path):
    """The command line, with options in ``options.json``."""
    submitted.options = tmp_path / "options.json"
    submitted.options.write_text(json.dumps(OPTIONS))
    return submitted


def read_newest(run: Path) -> dict[str, np.ndarray]:
    """The arrays of a run's newest checkpoint."""
    saved = read_newest_run(str(run), on_skip=lambda reason: None)
    assert saved is not None
    return dict(saved.arrays)


def assert_equal_runs(one: Path, other: Path) -> None:
    """Every array of the newest checkpoints has the same bits, but that each server has the steps of its part of a hashed table."""
    expected, found = read_newest(one), read_newest(other)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        if section_of(name) is not None and "/steps/" in name:
            assert np.unique(found[name]).tolist() == np.unique(array).tolist(), name
        else:
            assert array.tobytes() == found[name].tobytes(), name


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--servers", "0"), "--servers must be a number of processes, or addresses"),
        (("--servers", "here"), "an address must be host:port"),
        (("--servers", "127.0.0.1:1,127.0.0.1:1"), "the addresses of servers must be different"),
        (("--servers", "2", "--tpu", "local", "--max-ids", "9"), "--max-ids must go without --servers"),
        (
            ("--servers", "2", "--launcher", "remote"),
            "--servers with --launcher remote needs the addresses of running servers",
        ),
        (("--servers", "2", "--server-updates", "some"), "--server-updates must be summed or each"),
        (("--server-ca", "file"), "--server-ca must go with --servers"),
        (("--wire-values", "fp14"), "rounded rows must be those of several hosts or of servers"),
        (("--hosts", "2", "--wire-values", "fp8"), "--wire-values must be a known encoding"),
        (("--wire-ids", "unique"), "--wire-ids must go with --servers"),
        (("--server-threads", "2"), "--server-threads must go with --servers"),
        (("--servers", "2", "--server-threads", "257"), "the threads of a server must be a number of threads"),
        (("--servers", "2", "--server-threads", "-1"), "the threads of a server must be a number of threads"),
        (("--servers", "a:1,b:2", "--server-threads", "2"), "must go with servers that this command starts"),
        (("--server-updates", "each"), "--server-updates must go with --servers"),
        (("--spare-servers", "1"), "--spare-servers must go with --servers"),
        (("--servers", "2", "--spare-servers", "1"), "--spare-servers needs a job"),
        (("--hosts", "1", "--servers", "a:1,b:2", "--spare-servers", "2"), "must leave a server for tables"),
        (("--hosts", "1", "--servers", "64", "--spare-servers", "1"), "up to 64 servers in all"),
        (("--servers", "1..2"), "servers that scale need a job"),
        (("--hosts", "1", "--servers", "2..1"), "--servers must be a number, or a range"),
        (("--hosts", "1", "--servers", "1..99"), "of at most 64 servers"),
        (("--hosts", "1", "--servers", "a:1,b:2", "--scale-servers-from", "3"), "must be a part of the servers"),
        (("--hosts", "1", "--servers", "1..3", "--scale-servers-from", "2"), "must be given once"),
        (("--hosts", "1", "--servers", "1..3", "--spare-servers", "1"), "must have no other rule"),
        (("--hosts", "1", "--servers", "1..3", "--least-servers", "1"), "must have no other rule"),
        (("--scale-servers-from", "1"), "--scale-servers-from must go with --servers"),
        (("--hosts", "1", "--servers", "1..3", "--plan", "plan.json"), "must have tables without a plan"),
        (("--servers", "2", "--wire-ids", "short"), "--wire-ids must be a known encoding"),
        (("--servers", "2", "--wire-values", "fp8"), "--wire-values must be a known encoding"),
    ],
)
def test_servers_that_cannot_be_are_refused(served, options, problem):
    assert problem in served("train", "first", *options, status=2).err


@pytest.mark.parametrize(
    ("servers", "given", "processors", "threads"),
    [("2", 0, 16, 8), ("3", 0, 16, 5), ("4", 0, 2, 1), ("1", 0, 1, 1), ("2..8", 0, 16, 2), ("2", 5, 16, 5), ("4", 3, 2, 3)],
)  # fmt: skip
def test_servers_of_this_machine_share_its_processors(monkeypatch, servers, given, processors, threads):
    """As many as can have tables at once: spares, which have none, get no processor less."""
    monkeypatch.setattr("trainer.tables.kernels.threads.available_threads", lambda: processors)
    assert ServerOptions(servers=servers, server_threads=given).local_threads == threads
    if ".." not in servers:
        assert ServerOptions(servers=servers, spare_servers=2, server_threads=given).local_threads == threads


def test_a_server_is_started_with_its_threads():
    assert "--threads" not in server_command(["--address", "here"])
    found = server_command(["--address", "here"], authority="ca.pem", threads=6)
    assert found[-8:] == ["ps", "serve", "--server-ca", "ca.pem", "--threads", "6", "--address", "here"]


def test_a_plan_of_other_servers_is_refused(served, tmp_path):
    plan = tmp_path / "plan.json"
    served("plan", "make", "first", "--topology", "ps:2", "--config", served.options, "--output", plan)
    err = served("train", "first", "--config", served.options, "--servers", 3, "--plan", plan, status=2).err
    assert "a plan must have a core for each server" in err
    assert "headrace plan make MODEL --topology ps:3" in err


@pytest.mark.slow
def test_training_on_servers_has_the_bits_of_one_process(served, tmp_path, monkeypatch):
    arguments = ("train", "first", "--config", served.options, "--json")
    alone = served(*arguments, "--run-dir", tmp_path / "alone").json
    folders: list[Path] = []
    enter = LocalServers.__enter__
    monkeypatch.setattr(LocalServers, "__enter__", lambda self: folders.append(self._folder) or enter(self))
    on_servers = served(*arguments, "--run-dir", tmp_path / "served", "--servers", 2, "--server-threads", 3).json
    assert [one.exists() for one in folders] == [False], "its shared memory is gone"
    assert on_servers["exact"] is True
    assert on_servers["events_this_time"] == alone["events_this_time"]
    assert alone["served"] is None
    assert on_servers["served"]["servers"] == 2
    assert on_servers["served"]["events"] == on_servers["events_this_time"]
    assert on_servers["served"]["fetched_rows"] > 0
    assert on_servers["served"]["updated_rows"] > 0
    assert_equal_runs(tmp_path / "alone", tmp_path / "served")
    again = served(*arguments, "--run-dir", tmp_path / "served").json
    assert again["events_this_time"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("values", ["float32", "fp16", "fp14"])
def test_training_with_encoded_messages_ends(served, tmp_path, values):
    """With the bits of one process where only row numbers are encoded, and near them where values are rounded."""
    arguments = ("train", "first", "--config", served.options, "--json")
    alone = served(*arguments, "--run-dir", tmp_path / "alone").json
    wire = ("--servers", 2, "--wire-ids", "unique", "--wire-values", values)
    found = served(*arguments, "--run-dir", tmp_path / "served", *wire).json
    assert found["events_this_time"] == alone["events_this_time"]
    expected, arrays = read_newest(tmp_path / "alone"), read_newest(tmp_path / "served")
    assert arrays.keys() == expected.keys()
    differing = [name for name, array in expected.items() if array.tobytes() != arrays[name].tobytes()]
    assert bool(differing) == (values != "float32"), differing


@pytest.mark.slow
def test_killed_servers_change_no_bit(served, tmp_path, monkeypatch):
    """Processes that answer are killed again and again, and each keeper once; also while rows are saved."""
    served.options.write_text(json.dumps({**OPTIONS, "passes": 30}))
    arguments = ("train", "first", "--config", served.options, "--json")
    served(*arguments, "--run-dir", tmp_path / "alone")
    started: list[LocalServers] = []
    enter = LocalServers.__enter__
    monkeypatch.setattr(LocalServers, "__enter__", lambda self: started.append(enter(self)) or self)
    kills, ends, random = [], threading.Event(), Random(1)

    def kill() -> None:
        keepers = 2
        while not ends.wait(_BETWEEN_KILLS_SECS):
            for name, keeper in (started[-1].processes if started else {}).items():
                children = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
                if len(kills) > 4 and keepers:
                    keepers -= 1
                    children = [str(keeper)]
                if children and random.random() < 0.5:
                    os.kill(int(children[0]), signal.SIGKILL)
                    kills.append(name)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        report = served(*arguments, "--run-dir", tmp_path / "served", "--servers", 2).json
    finally:
        ends.set()
        killer.join()
    assert len(kills) > 3
    assert report["exact"] is True
    assert_equal_runs(tmp_path / "alone", tmp_path / "served")


@pytest.mark.slow
def test_a_job_on_servers_has_the_bits_of_one_without(served, tmp_path):
    served.options.write_text(json.dumps({**OPTIONS, "passes": 2}))
    arguments = ("train", "first", "--config", served.options, "--hosts", 2, "--readers", 1, "--json")
    served(*arguments, "--run-dir", tmp_path / "hosts")
    report = served(*arguments, "--run-dir", tmp_path / "served", "--servers", 2).json
    assert report["exact"] is True
    check_hosts_train(report, 2)
    assert_equal_runs(tmp_path / "hosts", tmp_path / "served")
    again = served(
        "train", "first", "--config", served.options, "--hosts", 2, "--run-dir", tmp_path / "served", "--json"
    ).json
    assert again["events_this_time"] == 0


@pytest.mark.slow
def test_servers_serve_one_run_after_the_other(served, tmp_path):
    """In one process and in jobs: none of them sees rows of the run before, or is refused since its attempts have lower numbers."""
    arguments = ("train", "first", "--config", served.options, "--json")
    job = ("--hosts", 2, "--readers", 1)
    with thread_servers(2) as servers:
        addresses = ",".join(str(one.address) for one in servers)
        for number, hosts in enumerate(((), (), job, job, ())):
            run = tmp_path / str(number)
            report = served(*arguments, *hosts, "--run-dir", run, "--servers", addresses).json
            assert report["exact"] is True
            assert report["events_this_time"] == report["events_in_range"]
    served(*arguments, "--run-dir", tmp_path / "alone")
    served(*arguments, *job, "--run-dir", tmp_path / "job")
    for number, alone in enumerate(("alone", "alone", "job", "job", "alone")):
        assert_equal_runs(tmp_path / alone, tmp_path / str(number))


@pytest.mark.slow
def test_a_run_goes_on_after_another_run_had_its_servers(served, tmp_path):
    arguments = ("train", "first", "--config", served.options, "--json")
    first = ("--end", "2026-03-02T01:00")
    with thread_servers(1) as (server,):
        for name, end in (("one", first), ("other", ()), ("one", ())):
            served(*arguments, "--run-dir", tmp_path / name, *end, "--servers", server.address)
    for end in (first, ()):
        served(*arguments, "--run-dir", tmp_path / "alone", *end)
    assert_equal_runs(tmp_path / "alone", tmp_path / "one")


def test_servers_must_answer_before_data_is_read(served, tmp_path):
    with closing(ThreadServer(token="secret")) as server:
        found = served("train", "first", "--servers", server.address, "--run-dir", tmp_path / "run", status=1)
    assert "the token must be that of the servers" in found.err
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_job_goes_on_from_servers_to_hosts_and_back(served, tmp_path):
    """Its first hours on servers, then on hosts, then on other servers: the bits of hosts alone."""
    arguments = ("train", "first", "--config", served.options, "--hosts", 2, "--readers", 1, "--json")
    for end, servers in (("2026-03-02T01:00", 2), ("2026-03-02T03:00", 0), ("2026-03-02T04:00", 3)):
        served(*arguments, "--end", end, "--run-dir", tmp_path / "hosts")
        moved = ("--servers", servers) if servers else ()
        served(*arguments, "--end", end, "--run-dir", tmp_path / "moved", *moved)
    assert_equal_runs(tmp_path / "hosts", tmp_path / "moved")


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--embedding-workers", 1)], ids=["no workers", "a worker"])
def test_a_spare_server_has_no_tables(served, tmp_path, more):
    """Until a notice the bits are those of two servers, also by a plan that has a core for each of the two."""
    arguments = ("train", "first", "--config", served.options, "--hosts", 1, "--readers", 1, "--json")
    plan = tmp_path / "plan.json"
    served("plan", "make", "first", "--config", served.options, "--topology", "ps:2", "--output", plan)
    spare = ("--servers", 2, "--spare-servers", 1, "--plan", plan)
    found = served(*arguments, "--run-dir", tmp_path / "spare", *spare, *more)
    assert found.json["exact"] is True
    served(*arguments, "--run-dir", tmp_path / "two", "--servers", 2)
    assert_equal_runs(tmp_path / "two", tmp_path / "spare")


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--embedding-workers", 1)], ids=["no workers", "a worker"])
def test_a_range_of_servers_begins_with_the_least_number(served, tmp_path, more):
    """The bits are those of any number, and of one server here."""
    arguments = ("train", "first", "--config", served.options, "--hosts", 1, "--readers", 1, "--json")
    found = served(*arguments, "--run-dir", tmp_path / "range", "--servers", "1..3", *more)
    assert found.json["exact"] is True
    answered = found.json["served"]
    assert (answered["are_last"], answered["servers"]) == (True, 1)
    assert answered["fetched_rows"] > 0
    served(*arguments, "--run-dir", tmp_path / "one", "--servers", 1)
    assert_equal_runs(tmp_path / "one", tmp_path / "range")


@pytest.mark.slow
def test_updates_that_are_applied_as_they_arrive_train_all_events(served, tmp_path):
    served.options.write_text(json.dumps({**OPTIONS, "staleness": 3}))
    arguments = ("train", "first", "--config", served.options, "--hosts", 2, "--readers", 1, "--json")
    report = served(*arguments, "--run-dir", tmp_path / "each", "--servers", 2, "--server-updates", "each").json
    assert report["exact"] is True
    check_hosts_train(report, 2)
