"""``headrace train`` with the phases of a run file: initial and caught-up training as one command."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.main import run
from headrace.cli.train_options.arguments import controllers_of_phases, options_of_phases, parse_training
from tests.trainer.job.launch.jobs import make_warehouse, newest
from tests.warehouse.scenes import FREE_READS, events, work, write_partition
from trainer.errors import TornCheckpoint
from trainer.job.launch.phase_log import PhaseLog, PhaseRun
from transforms.child_process import child_environment, module_command
from transforms.errors import InputError
from warehouse import Warehouse, register_table
from warehouse.config import WarehouseConfig

PHASED = """
model = "ctr"
follow = true
home = "home"
[options]
dim = 4
batch_rows = 64
[initial]
hosts = 2
[initial.options]
staleness = 2
[caught_up]
servers = 2
[caught_up.options]
batch_rows = 32
embedding_learning_rate = 0.05
"""


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(text: str) -> str:
    Path("train.toml").write_text(text, encoding="utf-8")
    return "train.toml"


def test_each_phase_has_its_flags_and_options() -> None:
    found = options_of_phases(["--from", written(PHASED)])
    initial, caught_up = found["initial"], found["caught_up"]
    assert (initial.hosts.hosts, initial.hosts.follow, initial.servers.servers) == (2, False, "")
    assert (caught_up.hosts.hosts, caught_up.hosts.follow, caught_up.servers.servers) == (0, True, "2")
    assert json.loads(initial.run.config) == {"dim": 4, "batch_rows": 64, "staleness": 2}
    assert json.loads(caught_up.run.config) == {"dim": 4, "batch_rows": 32, "embedding_learning_rate": 0.05}


def test_a_flag_replaces_the_key_in_both_phases() -> None:
    found = options_of_phases(["--from", written(PHASED), "--hosts", "3"])
    assert [one.hosts.hosts for one in found.values()] == [3, 3]


def test_one_phase_may_be_a_training_of_another_command() -> None:
    name = written(PHASED)
    assert parse_training(["--from", name, "--phase", "caught_up"]).servers.servers == "2"
    with pytest.raises(InputError, match="training in another command must have one phase"):
        parse_training(["--from", name])


@pytest.mark.parametrize(
    ("text", "arguments", "words", "where"),
    [
        (PHASED.replace("hosts = 2", 'model = "x"'), (), "must have keys that may be different", "train.toml:initial.model"),
        (PHASED.replace("hosts = 2", "caught-up-hosts = 2"), (), "must have keys that may", "train.toml:initial.caught-up-hosts"),
        (PHASED.replace("hosts = 2", "hosts = []"), (), "must have its flag's type", "train.toml:initial.hosts"),
        ("caught-up-hosts = 2\n" + PHASED, (), "settings in one place", "--caught-up-hosts"),
        ('model = "a"\ninitial = 3', (), "a phase must be a table", "train.toml:initial"),
        (PHASED.replace("staleness = 2", "dim = 8"), (), "must be equal in all phases", "options.dim"),
        (PHASED.replace("[options]\ndim = 4\nbatch_rows = 64", 'config = "o.json"'), (), "beside the table options", "train.toml:config"),
        (PHASED, ("--phase", "later"), "a phase must be a table of the run file", "--phase"),
        (PHASED, ("--save-as", "other.toml"), "--save-as must go without phases", "--save-as"),
        (PHASED, ("--launcher", "tpu-vm", "--hosts", "2"), "its script makes one slice and deletes it", "--launcher, --from"),
        (PHASED, ("--launcher", "remote", "--hosts", "2"), "it cannot start those of another", "--launcher, --from"),
        (PHASED, ("--launcher", "gke", "--hosts", "2"), "must name the version of its model", "--version"),
        (PHASED, ("--catch-up-secs", "0"), "must be above 0", "--catch-up-secs"),
        ('model = "ctr"', ("--phase", "initial"), "a phase must be a table of the run file", "--phase"),
    ],
)  # fmt: skip
def test_phases_that_cannot_be_are_refused(
    cli: Any, text: str, arguments: tuple[str, ...], words: str, where: str
) -> None:
    err = cli("train", "--from", written(text), *arguments, status=2).err
    assert words in err
    assert where in err


#: The arguments of the controller of a phase on a cluster.
CONTROLLER = ["train", "ctr", "--launcher", "remote", "--hosts", "1", "--readers", "1", "--home", "home", "--run-dir", "gs://b/r",
              "--jobset", "team/ctr-initial", "--listen", "127.0.0.1:7410", "--token-file", "token"]  # fmt: skip


def test_controllers_of_phases_are_two_trainings() -> None:
    second = ["team/ctr-caught-up" if one == "team/ctr-initial" else one for one in CONTROLLER]
    found = controllers_of_phases([*CONTROLLER, "--keep-jobset", "--", *second, "--follow"])
    assert {phase: one.cluster.jobset for phase, one in found.items()} == {
        "initial": "team/ctr-initial",
        "caught_up": "team/ctr-caught-up",
    }
    assert [(one.cluster.keep_jobset, one.hosts.follow) for one in found.values()] == [(True, False), (False, True)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (CONTROLLER, "phases must be the arguments of two trainings"),
        ([*CONTROLLER, "--", "evaluate", "ctr"], "phases must be the arguments of two trainings"),
        ([*CONTROLLER, "--", "train", "ctr"], "must have the JobSet of its workers"),
        ([*CONTROLLER, "--", *CONTROLLER, "--run-dir", "gs://b/other"], "phases must be those of one run"),
        ([*CONTROLLER, "--", *CONTROLLER, "--config", '{"dim": 3}'], "must be equal in all phases"),
    ],
)
def test_controllers_that_are_not_those_of_phases_are_refused(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["role", "phases", "--", *arguments]) == 2
    assert words in " ".join(capsys.readouterr().err.split())


def test_a_phase_needs_a_file(cli: Any) -> None:
    assert "--phase needs a run file" in cli("train", "ctr", "--phase", "initial", status=2).err


@pytest.mark.parametrize(("events", "secs", "has_caught_up"), [(5, 9.0, True), (5, 10.5, False), (0, 99.0, True)])
def test_initial_training_ends_when_it_is_short_or_has_nothing_to_train(
    events: int, secs: float, has_caught_up: bool
) -> None:
    """A time below that of starting a training must not repeat empty ones for ever."""
    assert PhaseRun("initial", 1, 0, events, secs).has_caught_up(10.0) == has_caught_up


def test_the_log_is_replaced_as_a_whole(tmp_path: Path) -> None:
    assert PhaseLog.read(tmp_path / "none") == PhaseLog()
    log = PhaseLog().with_run(PhaseRun("initial", 2, 0, 7, 1.5))
    log.write(tmp_path)
    PhaseLog(is_caught_up=True, runs=log.runs).write(tmp_path)
    assert PhaseLog.read(tmp_path) == PhaseLog(is_caught_up=True, runs=log.runs)
    for damage in (
        b"{",
        b"[]",
        b'{"format": "x", "is_caught_up": false, "runs": []}',
        b'{"runs": 3}',
        b"\xff",
        b'{"format":"headrace-phases-1","is_caught_up":1,"runs":[]}',
    ):
        (tmp_path / "phases.json").write_bytes(damage)
        with pytest.raises(TornCheckpoint):
            PhaseLog.read(tmp_path)


OPTIONS = {"batch_rows": 32, "dim": 4, "bottom_mlp": [8], "top_mlp": [8], "deep": True, "linear": True, "network": "dlrm",
           "embedding_learning_rate": 0.05, "dense_learning_rate": 0.003, "linear_learning_rate": 0.1, "initial_bias": 0.0,
           "dense_scaling": {}, "passes": 1, "partitions_per_epoch": 1}  # fmt: skip


class Phased:
    """A warehouse with three hours of a log, and ``headrace train`` in phases on it."""

    def __init__(self, folder: Path, more: str = "") -> None:
        pytest.importorskip("tensorflow")
        self.folder = folder
        make_warehouse(folder, hours=3, rows=300).close()
        options = "".join(f"{name} = {json.dumps(value) if value != {} else '{}'}\n" for name, value in OPTIONS.items())
        (folder / "train.toml").write_text(
            f'model = "ctr"\nhome = "home"\nrun-dir = "run"\n{more}[options]\n{options}'
            "[initial]\nhosts = 2\nreaders = 1\n[caught_up]\nservers = 1\n"
            "[caught_up.options]\nbatch_rows = 16\nembedding_learning_rate = 0.02\n"
        )

    def start(self) -> subprocess.Popen[bytes]:
        command = module_command("headrace", "--record", str(self.folder / "result"), "train", "--from", str(self.folder / "train.toml"))  # fmt: skip
        with open(self.folder / "output", "ab") as log:
            return subprocess.Popen(command, env=child_environment(), stdout=log, stderr=log)

    def said(self) -> str:
        return (self.folder / "output").read_text()

    def check_runs(self, process: subprocess.Popen[bytes], end_secs: float) -> None:
        """Wait a moment; the command must not have ended."""
        assert process.poll() is None, self.said()
        assert time.monotonic() < end_secs, self.said()
        time.sleep(0.2)

    def result(self, process: subprocess.Popen[bytes]) -> Any:
        assert process.wait(600) == 0, self.said()
        return json.loads((self.folder / "result").read_text())

    def land(self, hour: int) -> None:
        write_partition(self.folder / "log", hour, events(300, seed=hour))
        with Warehouse.open(WarehouseConfig(home=str(self.folder / "home"), rates=FREE_READS)) as warehouse:
            register_table(warehouse, "log", str(self.folder / "log"))
            work(warehouse)


@pytest.mark.slow
def test_a_run_is_trained_in_both_phases_by_one_command(tmp_path: Path) -> None:
    """Two hosts train the history, and a server holds the tables once it is trained, with another batch and rate."""
    training = Phased(tmp_path)
    first = training.result(training.start())
    assert first["is_caught_up"]
    rows = {row["phase"]: row for row in first["phases"]}
    assert (rows["initial"]["hosts"], rows["initial"]["servers"]) == (2, 0)
    assert (rows["caught_up"]["hosts"], rows["caught_up"]["servers"], rows["caught_up"]["events"]) == (1, 1, 0)
    history = rows["initial"]["events"]
    assert history == first["training"]["events_in_range"]
    training.land(3)
    again = training.result(training.start())
    rows = {row["phase"]: row for row in again["phases"]}
    assert (rows["initial"]["trainings"], rows["initial"]["events"]) == (1, history)
    assert rows["caught_up"]["events"] == again["training"]["events_in_range"] - history == 300
    assert again["training"]["exact"]
    config = newest(tmp_path / "run").document["identity"]["config"]
    assert (config["batch_rows"], config["embedding_learning_rate"], config["dim"]) == (16, 0.02, 4)
    assert "option batch_rows is 16, was 32: the rest of the run is trained with it" in training.said()
    assert "phases" in training.said()


@pytest.mark.slow
def test_a_command_that_is_killed_anywhere_trains_each_event_once(tmp_path: Path) -> None:
    """Also while the phases change; it goes on in the phase that it was in."""
    training, draw = Phased(tmp_path), random.Random(3)

    def kill(times: int) -> None:
        for _ in range(times):
            process = training.start()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(draw.uniform(1.0, 30.0))
            process.kill()
            process.wait()

    kill(4)
    history = training.result(training.start())
    assert (history["is_caught_up"], history["training"]["exact"]) == (True, True)
    training.land(3)
    kill(2)
    result = training.result(training.start())
    assert (result["training"]["finished"], result["training"]["exact"]) == (True, True)
    assert result["training"]["events_in_range"] == history["training"]["events_in_range"] + 300
    assert newest(tmp_path / "run").document["identity"]["config"]["batch_rows"] == 16


@pytest.mark.slow
def test_a_command_that_follows_stops_at_a_commit(tmp_path: Path) -> None:
    training = Phased(tmp_path, "follow = true\npoll-secs = 0.3\n")
    (tmp_path / "train.toml").write_text(
        (tmp_path / "train.toml").read_text().replace("servers = 1", "servers = 1\nhosts = 1")
    )
    process = training.start()
    end = time.monotonic() + 300
    while not PhaseLog.read(tmp_path / "run").is_caught_up:
        training.check_runs(process, end)
    training.land(3)
    while newest(tmp_path / "run").document["identity"]["config"]["batch_rows"] != 16:
        training.check_runs(process, end)
    process.send_signal(signal.SIGINT)
    result = training.result(process)
    assert [row["phase"] for row in result["phases"]] == ["initial", "caught_up"]
    assert result["phases"][1]["events"] == 300
