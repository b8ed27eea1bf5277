"""From a topic to served weights by four commands that follow each other, each of which is killed again and again: each event counts once everywhere."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kafka.install import ROOT
from tests.kafka.test_topics import events, home, rows  # noqa: F401 (a fixture)
from tests.support.processes import PATIENCE_SECS
from tests.trainer.serving.deltas.histories import served_arrays, wanted_arrays
from trainer.checkpoints.checkpoint import read_newest
from trainer.serving.deltas.chain_files import link_places, open_chain, read_chain
from trainer.serving.deltas.served_rows import open_served

if TYPE_CHECKING:
    from tests.kafka.broker import Broker

pytestmark = pytest.mark.kafka
_MODEL = """
import headrace as hr

model = hr.Model("ctr", client="topic", label="clicked", table="log")
model.input("id", hr.int64("id").hash_buckets(500))
model.input("country", hr.text("user_country").lower().hash_buckets(50))
"""
_OPTIONS = {"batch_rows": 32, "dim": 4, "bottom_mlp": [8], "top_mlp": [8], "deep": True, "linear": True, "network": "dlrm",
            "embedding_learning_rate": 0.05, "dense_learning_rate": 0.003, "linear_learning_rate": 0.1, "initial_bias": 0.0,
            "dense_scaling": {}, "passes": 1}  # fmt: skip


def headrace(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "headrace", *map(str, arguments)]


def finish(*arguments: object) -> dict[str, object]:
    """What a command that ends by itself says."""
    done = subprocess.run(headrace(*arguments, "--json"), cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1] if b"\n{" in done.stdout else done.stdout)
    return found


@dataclass
class Follower:
    """A command that runs until it is killed, and is started again then."""

    name: str
    command: list[str]
    log: Path
    kills: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None)

    def keep_running(self) -> None:
        if self.process is not None and self.process.poll() is None:
            return
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.kills += 1


def kill_until(
    is_enough: Callable[[], bool], followers: list[Follower], links: Callable[[], int], produce: Callable[[], None]
) -> None:
    """Kill one of the commands at random moments, while messages are written: the trainer mostly after it has served something."""
    chance, served, end = random.Random(11), 0, time.monotonic() + 3 * PATIENCE_SECS
    while not is_enough():
        assert time.monotonic() < end, f"{links()} links; kills: {[(one.name, one.kills) for one in followers]}"
        until = time.monotonic() + chance.uniform(1.0, 4.0)
        while time.monotonic() < until:
            for one in followers:
                one.keep_running()
            produce()
            time.sleep(0.2)
        victim = chance.choice(followers)
        if victim.name != "trainer" or links() > served or chance.random() < 0.1:
            victim.kill()
            served = links() if victim.name == "trainer" else served


@pytest.mark.timeout(1800)
def test_each_event_is_served_once_though_every_command_is_killed(broker: Broker, home: str, tmp_path: Path) -> None:  # noqa: F811
    broker.create("served", 2)
    chance, written = random.Random(5), 0

    def produce() -> None:
        nonlocal written
        for partition in range(2):
            some = chance.randrange(30)
            broker.produce("served", events(range(written, written + some)), partition)
            written += some

    produce()
    place, run, chain, served = broker.place("served"), tmp_path / "run", tmp_path / "chain", tmp_path / "rows"
    (tmp_path / "model.py").write_text(_MODEL)
    (tmp_path / "options.json").write_text(json.dumps(_OPTIONS))
    finish("table", "add", "log", place)
    finish("model", "submit", tmp_path / "model.py", "--policy", "all")
    train = (
        "train",
        "ctr",
        "--config",
        tmp_path / "options.json",
        "--run-dir",
        run,
        "--hosts",
        1,
        "--readers",
        1,
        "--export",
        chain,
    )
    followers = [
        Follower(name, headrace(*command), tmp_path / f"{name}.log")
        for name, command in (
            ("importer", ("table", "add", "log", place, "--follow", "--every", "0.5s", "--batch-messages", 300)),
            ("worker", ("work",)),
            ("trainer", (*train, "--follow")),
            ("server", ("export", "apply", chain, "--to", served, "--follow")),
        )
    ]  # fmt: skip
    least = int(os.environ.get("HEADRACE_KAFKA_KILLS", "2"))

    def links() -> int:
        return len(link_places(open_chain(chain)))

    def is_enough() -> bool:
        return links() >= 2 + least and all(one.kills >= least for one in followers)

    try:
        kill_until(is_enough, followers, links, produce)
    finally:
        for one in followers:
            one.kill()
    assert finish("table", "add", "log", place)["lag"] == 0
    assert sorted(rows(home)["id"].to_pylist()) == list(range(written)), "each event once in the table"
    finish("work", "--until-idle")
    trained = finish(*train)
    assert (trained["exact"], trained["counted"], trained["fewest_times"], trained["most_times"]) == (
        True,
        written,
        1,
        1,
    )
    finish("export", "apply", chain, "--to", served)
    read = read_chain(chain)
    commits = Counter(str(one.manifest.commit) for one in read)
    assert set(commits.values()) == {1}, "each commit is one link"
    saved = read_newest(run, on_skip=_refuse)
    last = read[-1].manifest.commit
    assert saved is not None
    assert (last.epochs, last.sha256) == (saved.epochs_done, saved.digest)
    state = open_served(served)
    assert state is not None
    weights = {
        name: one for name, one in saved.arrays.items() if name.partition("/")[0] in ("dense", "embedding", "linear")
    }
    assert served_arrays(state) == wanted_arrays(weights), "what is served has the weights of the newest commit"
    print(f"{written} events, {len(read)} links; kills: {', '.join(f'{one.name} {one.kills}' for one in followers)}")


def _refuse(reason: str) -> None:
    raise AssertionError(reason)
