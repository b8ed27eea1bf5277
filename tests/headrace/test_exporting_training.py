"""``headrace train --export``: every commit is served, whatever is killed."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.gcs_server import GcsServer
from tests.support.processes import PATIENCE_SECS
from tests.trainer.job.launch.jobs import make_warehouse, newest
from tests.trainer.serving.deltas.histories import served_arrays, wanted_arrays
from tests.warehouse.scenes import FREE_READS, events, write_partition
from trainer.serving.apply_chain import apply_chain
from trainer.serving.deltas.chain_files import LinkPlace, link_places, open_chain, read_chain
from trainer.serving.deltas.served_rows import open_served
from trainer.serving.deltas.verify_chain import verify_chain
from warehouse import Warehouse, register_table
from warehouse.config import WarehouseConfig

OPTIONS = {"batch_rows": 32, "dim": 4, "bottom_mlp": [8], "top_mlp": [8], "deep": True, "linear": True, "network": "dlrm",
           "embedding_learning_rate": 0.05, "dense_learning_rate": 0.003, "linear_learning_rate": 0.1, "initial_bias": 0.0,
           "dense_scaling": {}, "passes": 3, "partitions_per_epoch": 1, "keep_checkpoints": 1}  # fmt: skip
_LONG_SECS = 5 * PATIENCE_SECS


class Training:
    """A warehouse, and ``headrace train --export`` on it; ``chain``: a folder, or in a bucket."""

    def __init__(self, folder: Path, chain: str = "") -> None:
        self.folder, self.run, self.chain = folder, folder / "run", chain or folder / "chain"
        make_warehouse(folder, hours=3, rows=300).close()

    def arguments(self, *more: object, passes: int = 3) -> list[str]:
        (self.folder / "options.json").write_text(json.dumps({**OPTIONS, "passes": passes}))
        return ["train", "ctr", "--home", str(self.folder / "home"), "--run-dir", str(self.run), "--config",
                str(self.folder / "options.json"), "--export", str(self.chain), "--json", *map(str, more)]  # fmt: skip

    def start(self, *more: object) -> subprocess.Popen[bytes]:
        with open(self.folder / "output", "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "headrace", "--record", str(self.folder / "result"), *self.arguments(*more)],
                stdout=log, stderr=log)  # fmt: skip

    def wait_for_links(self, count: int, process: subprocess.Popen[bytes]) -> None:
        """Wait until the chain has so many links, or the process has ended."""
        end = time.monotonic() + _LONG_SECS
        while len(self.places()) < count and process.poll() is None:
            assert time.monotonic() < end, self.said()
            time.sleep(0.02)

    def end(self, process: subprocess.Popen[bytes]) -> Any:
        """The result of a process that ends by itself."""
        assert process.wait(_LONG_SECS) == 0, self.said()
        return json.loads((self.folder / "result").read_text())

    def places(self) -> tuple[LinkPlace, ...]:
        return link_places(open_chain(self.chain))

    def links(self) -> list[str]:
        return [one.manifest.name for one in read_chain(self.chain)] if self.places() else []

    def said(self) -> str:
        return (self.folder / "output").read_text()

    def check_served(self) -> None:
        """A server that applies the chain has the weights of the newest commit."""
        check_served(self.chain, str(self.run), self.folder / "served")


def check_served(chain: str | Path, run: str, target: Path) -> None:
    """The chain is whole, and a server that applies it has the weights of the run's newest commit."""
    assert [one for one in verify_chain(chain) if one.problem] == []
    last, saved = read_chain(chain)[-1].manifest, newest(run)
    assert (last.commit.epochs, last.commit.sha256) == (saved.epochs_done, saved.digest)
    apply_chain(chain, target)
    state = open_served(target)
    assert state is not None
    kinds = ("dense", "embedding", "linear")
    arrays = {name: array for name, array in saved.arrays.items() if name.partition("/")[0] in kinds}
    assert served_arrays(state) == wanted_arrays(arrays)


@pytest.fixture
def training(tmp_path: Path) -> Training:
    pytest.importorskip("tensorflow")
    return Training(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [(), ("--servers", 1), ("--hosts", 1, "--readers", 1)],
    ids=["in one process", "on a server", "in a job"],
)
def test_a_training_that_is_killed_again_and_again_serves_its_newest_commit(
    training: Training, options: tuple[Any, ...]
) -> None:
    kill_and_serve(training, options)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [(), ("--hosts", 2, "--readers", 1)], ids=["in one process", "in a job of two hosts"]
)
def test_links_in_a_bucket_serve_the_newest_commit_of_a_training_that_is_killed(
    tmp_path: Path, gcs_server: GcsServer, options: tuple[Any, ...]
) -> None:
    pytest.importorskip("tensorflow")
    kill_and_serve(Training(tmp_path, gcs_server.home(gcs_server.bucket(), "links")), options)


def kill_and_serve(training: Training, options: tuple[Any, ...]) -> None:
    """Train, kill the command after its first and third link, and train to the end."""
    for links in (1, 3):
        process = training.start(*options)
        training.wait_for_links(links, process)
        process.send_signal(signal.SIGKILL)
        process.wait()
    report = training.end(training.start(*options))
    assert report["finished"]
    assert report["export"]["newest"] == training.links()[-1]
    assert report["export"]["problem"] == ""
    assert training.links()[0] == "000000-full"
    assert all(name.endswith("-delta") for name in training.links()[1:])
    training.check_served()


@pytest.mark.slow
def test_a_job_that_follows_its_table_serves_what_lands(training: Training) -> None:
    process = training.start("--hosts", 1, "--readers", 1, "--follow", "--poll-secs", 0.3)
    training.wait_for_links(1, process)
    time.sleep(1)
    while (seen := len(training.places())) < 1 or read_chain(training.chain)[-1].manifest.commit.epochs < 9:
        assert process.poll() is None, training.said()
        time.sleep(0.2)
    write_partition(training.folder / "log", 3, events(300, seed=3))
    with Warehouse.open(WarehouseConfig(home=str(training.folder / "home"), rates=FREE_READS)) as warehouse:
        register_table(warehouse, "log", str(training.folder / "log"))
    training.wait_for_links(seen + 1, process)
    process.send_signal(signal.SIGTERM)
    training.end(process)
    training.check_served()


@pytest.mark.slow
def test_a_chain_that_cannot_go_on_ends_a_whole_training_with_its_error(
    training: Training, cli: Callable[..., Any]
) -> None:
    first = cli(*training.arguments("--end", "2026-01-01T02:00", passes=1))
    assert "links" not in first.err
    (next(training.chain.glob(".rows-*")) / "table-0000.ids").write_bytes(b"damaged!")
    failed = cli(*training.arguments(passes=1), status=3)
    report = failed.json
    assert report["finished"]
    assert report["exact"]
    assert report["export"]["newest"] == training.links()[-1]
    assert report["export"]["problem"]
    assert "was not written, training goes on" in failed.err
    assert f"training is done and committed, but {training.chain} ends with {training.links()[-1]}" in failed.err
    shutil.rmtree(next(training.chain.glob(".rows-*")))
    again = cli(*training.arguments(passes=1)).json
    assert again["events_this_time"] == 0
    assert again["export"]["newest"].endswith("-full")
    training.check_served()


def test_wrong_options_are_refused_before_training(cli: Callable[..., Any], tmp_path: Path) -> None:
    make_warehouse(tmp_path, hours=2, rows=40).close()
    run = tmp_path / "run"
    command = ("train", "ctr", "--home", tmp_path / "home", "--run-dir", run)
    for options, problem in (
        (("--export-quantize", "fp16"), "must go with --export"),
        (("--export", "chain", "--export-quantize", "int4"), "none, fp16, int8"),
        (("--export", "s3://bucket/chain"), "or in a folder of a bucket"),
        (("--export", "gs://bucket"), "or in a folder of a bucket"),
        (("--export", run), "a folder of their own"),
    ):
        assert problem in cli(*command, *options, status=2).err
    assert not run.exists()
