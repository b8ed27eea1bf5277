"""Each setup that the table of combinations allows trains, goes on after a stop, moves to another place, is exported and scored.

A run has the bits of one without its servers, workers, plan and towers wherever these only say where rows stand.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.headrace.test_hashed_training import HASHED, MODELS
from tests.headrace.test_lost_servers import server_processes
from tests.headrace.test_moved_servers import Mover
from tests.headrace.test_served_training import OPTIONS, assert_equal_runs, read_newest
from tests.support.host_steps import check_hosts_train
from tests.trainer.serving.deltas.histories import served_arrays, wanted_arrays
from trainer.job.control.job_files import JobFiles
from trainer.options.combinations import Setup, refusal_of
from trainer.planning.plan_document import plan_bytes
from trainer.run.weights.saved_run import read_newest_run
from trainer.serving.apply_chain import apply_chain
from trainer.serving.deltas.served_rows import open_served
from trainer.serving.deltas.verify_chain import verify_chain

pytest.importorskip("tensorflow")

from tests.support.emulated_slice import EmulatedSlice

pytestmark = pytest.mark.slow

SERVERS = 2
#: What options say of the rows that have memory.
KINDS = {
    "plain": {},
    "hashed": {"hashed": HASHED},
    "pruned": {"pruning": {"budget": 0.5, "round_steps": 3}},
    "mixed": {"hashed": {"overlap": HASHED["overlap"]}, "pruning": {"budget": 0.5, "round_steps": 3}},
    "hot": {"hot_rows": 20},
}
#: The model of hashed tables, with ids in tables that have all their rows.
BOUNDED = MODELS.replace("2**62", "500").replace("2**63 - 1", "300")
#: The model of each kind of rows, if not the bounded one; some tables of a mixed one are hashed, and others pruned.
MODELS_OF = {"hashed": MODELS, "mixed": MODELS.replace("2**63 - 1", "300")}


def setups() -> Iterator[Any]:
    """The allowed setups without TPUs, and without those that lack what an option needs."""
    for kind, hosts in itertools.product(KINDS, (1, 2)):
        for one in setups_of(kind, hosts):
            yield pytest.param(kind, one, id=described(kind, one))


def moved_setups() -> Iterator[Any]:
    """The setups whose tables may be moved to other servers while they train."""
    for kind, hosts in itertools.product(KINDS, (1, 2)):
        for one in setups_of(kind, hosts):
            if one.servers and not one.least_servers and refusal_of(replace(one, moves=True)) is None:
                yield pytest.param(kind, one, id=described(kind, one))


def setups_beside_a_slice() -> Iterator[Any]:
    """The allowed setups of one process with servers, beside TPUs."""
    for kind in KINDS:
        for one in setups_of(kind, 1):
            if one.servers and refusal_of(replace(one, tpu=True)) is None:
                yield pytest.param(kind, one, id=described(kind, one))


def setups_of(kind: str, hosts: int) -> Iterator[Setup]:
    """The allowed setups of a kind of rows and a number of hosts."""
    names = ("servers", "workers", "plan", "towers", "least_servers")
    for values in itertools.product((False, True), repeat=len(names)):
        options = KINDS[kind]
        kinds = {"hashed": "hashed" in options, "pruned": "pruning" in options, "hot": "hot_rows" in options}
        one = Setup(hosts=hosts, **kinds, **dict(zip(names, values, strict=True)))
        is_whole = (one.servers or not (one.workers or one.least_servers)) and (one.hosts > 1 or not one.towers)
        if is_whole and refusal_of(one) is None:
            yield one


def described(kind: str, setup: Setup) -> str:
    """The options of a setup, joined."""
    places = [name for name in ("servers", "workers", "plan", "towers", "least_servers") if getattr(setup, name)]
    return "-".join([kind, f"{setup.hosts}-hosts" if setup.hosts > 1 else "one-process", *places])


@pytest.fixture
def command(cli, small_log, tmp_path, kind):
    """The command line, with a model of the kind of rows, and its options in ``options.json``."""
    models = tmp_path / "models.py"
    models.write_text(MODELS_OF.get(kind, BOUNDED), encoding="utf-8")
    cli("table", "add", "log", small_log, "--time-column", "time")
    cli("model", "submit", models, "--table", "log")
    cli.options = tmp_path / "options.json"
    fixed = {"initial_bias": -2.0, "dense_scaling": {}}  # else they depend on the range of the first command
    shared = {**OPTIONS, **fixed, "batch_rows": 32, "partitions_per_epoch": 1, "keep_checkpoints": 99}
    cli.options.write_text(json.dumps({**shared, **KINDS[kind]}))
    cli.plain = tmp_path / "plain.json"
    cli.plain.write_text(json.dumps(shared))
    return cli


def flags(command, setup: Setup, folder) -> list[object]:
    """The options of ``headrace train`` of a setup."""
    found: list[object] = ["--hosts", 2, "--readers", 1] if setup.hosts > 1 else []
    if setup.servers:
        found += ["--servers", SERVERS]
    if setup.workers:
        found += ["--embedding-workers", 3]  # of two hosts one has two workers
    if setup.least_servers:
        found += ["--least-servers", 1]
    if setup.plan:
        plan = folder / "plan.json"
        cores = "ps:2" if setup.servers else "cpu:2"
        command("plan", "make", "first", "--topology", cores, "--config", command.options, "--output", plan)
        found += ["--plan", plan]
    if setup.towers:
        towers = folder / "towers.json"
        command("towers", "make", "first", "--towers", 2, "--strategy", "strided", "--output", towers)
        found += ["--towers", towers]
    return found


@pytest.mark.parametrize(("kind", "setup"), list(setups()))
def test_each_allowed_setup_trains(command, kind, setup, tmp_path):
    train = ("train", "first", "--config", command.options)
    here = (*train, *flags(command, setup, tmp_path))
    report = command(*here, "--run-dir", tmp_path / "whole", "--export", tmp_path / "links", "--json").json
    assert (report["exact"], report["finished"]) == (True, True)
    if setup.hosts > 1:
        check_hosts_train(report, setup.hosts)
    for end in ("2026-03-02T01:00", "2026-03-02T03:00", None):
        command(*here, "--run-dir", tmp_path / "parts", *(("--end", end) if end else ()))
    assert_equal_runs(tmp_path / "whole", tmp_path / "parts")
    check_served(tmp_path / "whole", tmp_path)
    alone = replace(setup, servers=False, workers=False, plan=False, towers=False, least_servers=False, hot=False)
    elsewhere = ("train", "first", "--config", command.plain if setup.hot else command.options)
    if alone != setup and refusal_of(alone) is None and has_bits_of_one_place(setup):
        command(*elsewhere, *flags(command, alone, tmp_path), "--run-dir", tmp_path / "alone")
        assert_equal_runs(tmp_path / "alone", tmp_path / "whole")
    if setup.towers and refusal_of(replace(setup, towers=False, plan=True)) is None:
        plan = plan_of_newest(tmp_path / "whole", tmp_path)
        command(*train, *flags(command, alone, tmp_path), "--plan", plan, "--run-dir", tmp_path / "by-plan")
        assert_equal_runs(tmp_path / "by-plan", tmp_path / "whole")
    command("ckpt", "reshard", tmp_path / "parts", "--epoch", 2, "--hosts", 3, "--output", tmp_path / "moved")
    if refusal_of(replace(alone, hosts=1)) is None:
        moved = command(*elsewhere, "--run-dir", tmp_path / "moved", "--json").json
        assert (moved["exact"], moved["finished"]) == (True, True)


@pytest.mark.parametrize(("kind", "setup"), list(moved_setups()))
def test_each_allowed_setup_moves_while_it_trains(command, kind, setup, tmp_path):
    """To as many servers: these are a part of what is computed where rows have a bounded number of places."""
    options = json.loads(command.options.read_text())
    # The move takes seconds; hosts commit an epoch in about one, one process in a tenth.
    command.options.write_text(json.dumps({**options, "passes": 20 if setup.hosts == 1 else 8}))
    train = ("train", "first", "--config", command.options, "--json", *flags(command, setup, tmp_path))
    run = tmp_path / "moved"
    files = JobFiles(run)
    files.make_token()
    plan = ("--plan", tmp_path / "plan.json") if setup.plan else ()
    with server_processes(tmp_path, SERVERS, str(files.token)) as servers:
        addresses = ",".join(str(one.address) for one in servers)
        with Mover(run, [(addresses, plan)]) as mover:
            report = command(*train, "--run-dir", run).json
    assert [one.returncode for one in mover.found] == [0], mover.found[0].stderr
    assert (report["exact"], report["finished"]) == (True, True)
    command(*train, "--run-dir", tmp_path / "still")
    assert_equal_runs(tmp_path / "still", run)


@pytest.mark.parametrize(("kind", "setup"), list(setups_beside_a_slice()))
def test_each_allowed_setup_of_servers_trains_beside_a_slice(command, kind, setup, tmp_path, monkeypatch):
    """The dense part on one emulated device has the bits of the cpu, goes on after a stop, and is exported."""
    monkeypatch.setattr("trainer.tables.tpu.connected_slice.connect", lambda name, settings, on_lost: EmulatedSlice(1))
    train = ("train", "first", "--config", command.options, *flags(command, setup, tmp_path))
    command(*train, "--run-dir", tmp_path / "cpu")
    beside = (*train, "--tpu", "local", "--run-dir", tmp_path / "slice", "--export", tmp_path / "links")
    command(*beside, "--end", "2026-03-02T02:00")
    report = command(*beside, "--json").json
    assert (report["exact"], report["finished"]) == (True, True)
    assert report["resumed_from"]
    assert_equal_runs(tmp_path / "cpu", tmp_path / "slice")
    check_served(tmp_path / "slice", tmp_path)


def has_bits_of_one_place(setup: Setup) -> bool:
    """Whether servers, workers, towers and a plan only say where rows are.

    A plan without servers or hosts cuts batches for simulated cores. Each host and each server has a share of the places of hashed and pruned
    tables: they have equal bits where there are as many of both, and rows are spread alike. Towers spread them by their plan.
    """
    if setup.hashed or setup.pruned:
        return setup.hosts == SERVERS and not setup.plan and not setup.towers
    return setup.hosts > 1 or setup.servers or not setup.plan


def plan_of_newest(run, folder) -> Path:
    """A file of the plan by which the parts of a run's newest commit have its tables."""
    saved = read_newest_run(str(run), on_skip=lambda reason: None)
    assert saved is not None
    assert saved.partition is not None
    file = folder / "plan-of-commit.json"
    file.write_bytes(plan_bytes(saved.partition))
    return file


def check_served(run, folder) -> None:
    """A server that applies the links which were written while the run trained has the weights of its newest commit."""
    assert [one for one in verify_chain(folder / "links") if one.problem] == []
    apply_chain(folder / "links", folder / "served")
    state = open_served(folder / "served")
    assert state is not None
    arrays = {
        name: array
        for name, array in read_newest(run).items()
        if name.partition("/")[0] in ("dense", "embedding", "linear")
    }
    assert served_arrays(state) == wanted_arrays(arrays)
