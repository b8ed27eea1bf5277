"""Training jobs of real processes: controller, readers and hosts over a small warehouse."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.cli.training_jobs import role_command
from tests.trainer.job.launch.jobs import (
    launch,
    make_warehouse,
    newest,
    prepare,
    run_job,
    settings,
    supervise,
    train_alone,
)
from tests.warehouse.scenes import model
from trainer.checkpoints.checkpoint import read_epoch
from trainer.errors import RunMismatch
from trainer.job.control.job_files import JobFiles
from trainer.job.launch.chaos.slow_disk import SlowDisk
from trainer.job.launch.job_spec import JobSpec
from trainer.job.launch.run_comparison import trained_history
from trainer.job.launch.supervisor import Supervisor, SupervisorSettings
from trainer.run.weights.saved_run import saved_run
from trainer.run.weights.staleness import StalenessCounts
from trainer.scheduling.transitions import JobState
from warehouse import submit_model

pytest.importorskip("tensorflow")
OPTIONS = {"batch_rows": 64, "passes": 2}
#: Late updates, and dense weights of several buckets, which are sent while the backward pass runs.
LATE = {"staleness": 3, "top_mlp": (800, 800, 8), "dense_learning_rate": 1e-4}


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory):
    with make_warehouse(tmp_path_factory.mktemp("warehouse"), hours=3, rows=3000) as opened:
        yield opened


def same(one: Path | str, other: Path | str, epochs: int | None = None) -> None:
    """The newest commits of two runs, or those after so many epochs, have the same weights, slots, history and counts."""
    a, b = (newest(run) if epochs is None else read_epoch(str(run), epochs) for run in (one, other))
    shared = {name for name in {*a.arrays, *b.arrays} if not name.startswith("predictions/")}
    assert [name for name in sorted(shared) if a.arrays[name].tobytes() != b.arrays[name].tobytes()] == []
    assert trained_history(a.document["history"]) == trained_history(b.document["history"])
    for name in ("ledger", "step", "position", "identity", "head"):
        assert a.document[name] == b.document[name], name


def is_exact(warehouse, run_dir: Path | str, **options: Any) -> bool:
    """Whether every event was trained as often as it should be."""
    prepared = prepare(warehouse, run_dir, **{**OPTIONS, **options})
    return prepared.summary().exact and not prepared.planned_events


@pytest.mark.medium
def test_a_job_trains_what_one_process_trains(warehouse, tmp_path):
    states = []
    status = run_job(
        warehouse,
        tmp_path / "job",
        settings(),
        on_status=lambda one: states.append(one.state),
        unit_rows=700,
        **OPTIONS,
    )
    assert (status.state, status.commit_epochs, status.next_unit) == (JobState.DONE, 6, status.planned_units)
    assert JobState.TRAINING in states
    train_alone(warehouse, tmp_path / "alone", **OPTIONS)
    same(tmp_path / "job", tmp_path / "alone")
    assert is_exact(warehouse, tmp_path / "job")


@pytest.mark.slow
@pytest.mark.parametrize(
    "network",
    [
        {"network": "tests.trainer.model.networks:busy", "embeddings": "tests.trainer.model.own_tables:of_a_job"},
        {"network": "dcn", "sequences": {"input_0": {"length": 2, "encoder": "din", "target": "input_1"}}},
        pytest.param(
            {"network": "dcn", "cross_rank": 3, "cross_structure": "parallel", "dropout": 0.2}, marks=pytest.mark.soak
        ),
    ],
)
def test_a_job_trains_other_networks_bit_for_bit(warehouse, tmp_path, network):
    """Hosts import a user's functions by their paths; random state, moving means and tables are in the commits."""
    options = {**OPTIONS, "passes": 1, **network}
    status = run_job(warehouse, tmp_path / "job", settings(), unit_rows=700, **options)
    assert status.state is JobState.DONE
    train_alone(warehouse, tmp_path / "alone", **options)
    same(tmp_path / "job", tmp_path / "alone")
    own = network["network"] != "dcn"
    assert bool(newest(tmp_path / "job").document["identity"]["config"]["network_digest"]) == own
    assert any(name.startswith("dense/moving/") for name in newest(tmp_path / "job").arrays) == own


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_a_job_of_several_labels_trains_what_one_process_trains(tmp_path, hosts):
    """No event is lost, and every task is scored."""
    label = {"click": "clicked", "costly": hr.float32("price") > 1.0, "price": hr.Label("price", task="regression")}
    with make_warehouse(tmp_path, hours=2, rows=1500, memoize=False) as opened:
        made = model(inputs=5)
        several = hr.Model("ctr", client="search", label=label, table="log")
        several.inputs.update(made.inputs)
        submit_model(opened, several)
        options = {**OPTIONS, "task_mlp": (4,), "task_weights": {"price": 0.2}}
        status = run_job(opened, tmp_path / "job", settings(hosts), unit_rows=400, **options)
        assert status.state is JobState.DONE
        prepared = prepare(opened, tmp_path / "job", **options)
        assert prepared.summary().exact
        scores = prepared.saved.progress.history[-1].scores
        assert list(scores.tasks) == ["click", "costly", "price"]
        assert scores.tasks["price"].events < scores.events  # some prices are null, and so are their labels
        if hosts == 1:
            train_alone(opened, tmp_path / "alone", **options)
            same(tmp_path / "job", tmp_path / "alone")


@pytest.mark.slow
def test_the_next_epoch_trains_while_parts_are_written(warehouse, tmp_path):
    """Commits that a slow disk writes during the next epoch are those of a job that waits for each of them."""
    folder, disk, options = tmp_path / "slow", tmp_path / "disk", {**OPTIONS, "passes": 1, "keep_checkpoints": 3}
    SlowDisk(disk).set(1.5)
    job = launch(warehouse, folder, settings(), unit_rows=700, **options)
    ahead = []

    def note(status):
        if status.pending_attempt is not None and status.attempt > status.pending_attempt:
            working = (one.progress for one in status.members if one.progress is not None)
            ahead.extend(one.events for one in working if one.attempt == status.attempt)

    def command(kind, name, given):
        slow = ("--slow-disk", str(disk)) if kind == "host" else ()
        return role_command(str(folder), kind, name, (*given, *slow))

    quick = SupervisorSettings(look_secs=0.1)
    status = Supervisor(JobFiles(folder), job.spec.job, command, note, settings=quick).run(job.newest)
    assert (status.state, status.commit_epochs) == (JobState.DONE, 3)
    assert max(ahead) > 0, "no event was trained while a part was written"
    run_job(warehouse, tmp_path / "waits", settings(overlap=False), unit_rows=700, **options)
    for epochs in (1, 2, 3):
        same(folder, tmp_path / "waits", epochs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hosts", "seed", "options"),
    [
        pytest.param(1, 1, {}, marks=pytest.mark.soak),
        (2, 2, {}),
        pytest.param(2, 3, {}, marks=pytest.mark.soak),
        (2, 4, LATE),
        (2, 5, {"passes": 2, "batch_file_bytes": 1 << 30}),
    ],
)
def test_no_kill_changes_a_bit(warehouse, tmp_path, hosts, seed, options):
    """Processes of all roles are killed at random moments, while epochs also end by time, unless that changes how late updates are."""
    options = {**OPTIONS, **options}
    kept_bytes = options.pop("batch_file_bytes", 0)
    chaos = random.Random(seed)
    epoch_secs = None if options.get("staleness") else 0.4
    of = settings(hosts, epoch_secs=epoch_secs, most_restarts=100, most_reader_failures=100)
    job = launch(warehouse, tmp_path / "killed", of, unit_rows=500, batch_file_bytes=kept_bytes, **options)
    supervisor = supervise(tmp_path / "killed", job)
    over = threading.Event()
    killed = []

    def kill():
        while not over.wait(chaos.uniform(0.5, 3.0)) and len(killed) < 8:
            running = list(supervisor.running().values())
            if running:
                one = chaos.choice(running)
                one.process.kill()
                killed.append(one.kind)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    try:
        status = supervisor.run(job.newest)
    finally:
        over.set()
    thread.join()
    assert status.state is JobState.DONE
    assert len(killed) >= 3
    reports = []
    run_job(warehouse, tmp_path / "calm", settings(hosts), on_status=reports.append, unit_rows=500, **options)
    same(tmp_path / "killed", tmp_path / "calm")
    assert is_exact(warehouse, tmp_path / "killed", **options)
    if kept_bytes:
        files = {"unit_rows": 500, "batch_file_bytes": kept_bytes, **options}
        run_job(warehouse, tmp_path / "again", settings(hosts), **files)
        same(tmp_path / "again", tmp_path / "calm")
        assert list(Path(warehouse.config.home).glob("batches/*/*.batches"))
    progress = [one.progress for status in reports for one in status.members if one.rank == 0 and one.progress]
    most = max(StalenessCounts.of_numbers(one.numbers).most for one in progress)
    assert most == options.get("staleness", 0), "hosts report the updates that lookups missed"


@pytest.mark.slow
def test_a_job_goes_on_with_other_numbers_of_hosts_and_readers(warehouse, tmp_path):
    """Stopped within an epoch on two hosts, a job ends on one host and three readers with the steps of one process."""
    of = settings(2, epoch_secs=0.3)
    job = launch(warehouse, tmp_path / "run", of, unit_rows=300, **OPTIONS)
    supervisor = supervise(
        tmp_path / "run", job, on_status=lambda one: supervisor.stop() if one.commit_epochs == 2 else None
    )
    assert supervisor.run(job.newest).state is JobState.STOPPED
    saved = saved_run(newest(tmp_path / "run"))
    assert saved.job.hosts == ("h0", "h1")
    assert 0 < saved.job.next_unit < job.plan.stop_unit
    again = launch(warehouse, tmp_path / "run", settings(1, most_readers=3), unit_rows=300, **OPTIONS)
    assert again.plan.to_bytes() == job.plan.to_bytes()
    assert (again.newest.epochs, again.newest.next_unit) == (saved.number, saved.job.next_unit)
    status = supervise(tmp_path / "run", again).run(again.newest)
    assert status.state is JobState.DONE
    assert is_exact(warehouse, tmp_path / "run")
    assert JobSpec.read(JobFiles(tmp_path / "run")).job == job.spec.job
    train_alone(warehouse, tmp_path / "alone", **OPTIONS)
    ended, alone = (saved_run(newest(tmp_path / name)).progress for name in ("run", "alone"))
    assert ended.step == alone.step, "hosts share each batch"
    for found, expected in zip(ended.history, alone.history, strict=True):
        assert found.scores.events == expected.scores.events
        assert found.scores.log_loss == pytest.approx(expected.scores.log_loss, rel=1e-3)


@pytest.mark.slow
@pytest.mark.soak
def test_divergence_holds_the_job_with_its_batch(warehouse, tmp_path):
    options = {**OPTIONS, "dense_optimizer": "sgd", "dense_learning_rate": 1e30}
    status = run_job(warehouse, tmp_path / "run", settings(), unit_rows=700, **options)
    assert status.state is JobState.HELD
    assert status.hold.reason.startswith("NonFiniteLoss")
    assert (tmp_path / "run" / "job" / "bad-batch-h0.npz").exists()
    again = run_job(warehouse, tmp_path / "run", settings(), unit_rows=700, **options)
    assert (again.state, again.hold) == (JobState.HELD, status.hold), "a hold outlives its processes"


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [1, 2])
def test_a_job_goes_on_with_other_options_within_its_epoch(warehouse, tmp_path, hosts):
    """Its plan goes on with other options: each event is trained once, and with rates of nothing no weight of the commit changes.

    Batches of another size go on from the last event of the epoch that is trained.
    """
    of = settings(hosts, epoch_secs=0.3)
    begins = {**OPTIONS, "passes": 1}
    job = launch(warehouse, tmp_path / "run", of, unit_rows=300, **begins)
    supervisor = supervise(
        tmp_path / "run", job, on_status=lambda one: supervisor.stop() if one.commit_epochs == 1 else None
    )
    assert supervisor.run(job.newest).state is JobState.STOPPED
    first = saved_run(newest(tmp_path / "run"))
    assert 0 < first.job.next_unit < job.plan.stop_unit
    log = JobFiles(tmp_path / "run").log
    log.write_bytes(
        log.read_bytes().replace(b'"test"', b'"an earlier one"')
    )  # a release whose log this one does not read
    rates = dict.fromkeys(("embedding_learning_rate", "dense_learning_rate", "linear_learning_rate"), 1e-30)
    others = {"embedding_optimizer": "adam", "dense_optimizer": "sgd"}
    goes_on = {**begins, **rates, **others, "staleness": 1, "batch_rows": 48}
    assert first.job.epoch_events == first.job.epoch_steps * OPTIONS["batch_rows"]
    again = launch(warehouse, tmp_path / "run", of, unit_rows=300, **goes_on)
    assert (again.plan.continues, again.plan.units.first_unit) == (first.job.plan, job.plan.units.first_unit)
    assert again.newest.next_unit == first.job.next_unit
    status = supervise(tmp_path / "run", again).run(again.newest)
    assert status.state is JobState.DONE
    assert is_exact(warehouse, tmp_path / "run", **goes_on)
    last = saved_run(newest(tmp_path / "run"))
    assert last.progress.step > first.progress.step
    assert (last.identity.config["staleness"], last.identity.config["batch_rows"]) == (1, 48)
    for name, before in first.arrays.items():
        if name.startswith("dense/weights/"):
            np.testing.assert_allclose(last.arrays[name], before, rtol=0, atol=1e-20, err_msg=name)
    with pytest.raises(RunMismatch, match="options, inputs and data"):
        launch(warehouse, tmp_path / "run", of, unit_rows=300, **{**goes_on, "dim": 8})


@pytest.mark.slow
def test_hosts_may_send_rounded_values(warehouse, tmp_path):
    """Half the bytes of rows between hosts; each event is trained once, and the loss is near that of values as they are."""
    losses = []
    for values in ("float32", "fp16"):
        options = {**OPTIONS, "passes": 1}
        status = run_job(warehouse, tmp_path / values, settings(2), unit_rows=700, wire_values=values, **options)
        assert status.state is JobState.DONE
        assert is_exact(warehouse, tmp_path / values, **options)
        losses.append(saved_run(newest(tmp_path / values)).progress.history[-1].scores.log_loss)
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[0], rel=0.01)
