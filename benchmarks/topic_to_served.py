"""From a message of a Kafka topic to served weights: the seconds of each event, with a real broker and four commands on one machine.

    python -m tests.kafka.install        # once: the broker, in .kafka/; needs java and mvn
    python -m benchmarks.topic_to_served [--secs 120] [--rate 20] [--history 20000] [--servers N] [--every S] [--poll-secs S] [--quick]

``headrace table add kafka://… --follow`` feeds a table, ``headrace train --follow --export`` trains what it brings, and a server, this process, applies
each link to a folder of rows as soon as it appears. Once the history is served, single messages are written at random moments, ``--rate`` a second on
average. An event is served when a link is applied whose commit has trained it: the topic has one partition, so the commit that has trained n events has
trained the first n messages. The last line says whether each message was trained exactly once, and the newest commit is served.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

import confluent_kafka
import numpy as np

import headrace as hr
from benchmarks.event_to_served import Job, following, wait_until_caught_up
from benchmarks.support.harness import machine
from tests.kafka.broker import Broker, running
from tests.kafka.install import PARTS
from trainer.checkpoints.open_run import open_run
from trainer.run.weights.saved_run import read_newest_run
from trainer.serving.apply_chain import apply_chain
from trainer.serving.deltas.chain_files import link_places, open_chain, read_chain
from trainer.serving.deltas.commit_weights import newest_commit, served_commit
from warehouse import Warehouse, WarehouseConfig, submit_model

_TOPIC, _TABLE = "clicks", "clicks"
_USERS = 100_000
_LOOK_SECS, _MOST_SECS = 0.01, 300.0


def clicks_model() -> hr.Model:
    """A model of two id features."""
    model = hr.Model("ctr", client="topic", label="clicked", table=_TABLE)
    model.input("user", hr.int64("user").hash_buckets(_USERS))
    model.input("country", hr.text("country").hash_buckets(100))
    return model


def messages(first: int, count: int, draw: np.random.Generator) -> list[Mapping[str, object]]:
    """Clicks of one day; users are as frequent as in a Zipf distribution."""
    users = draw.zipf(1.3, count) % _USERS
    return [
        {"number": first + k, "user": int(user), "country": f"c{int(user) % 40}", "clicked": int(user * 7 + k) % 5 == 0,
         "time": f"2026-03-01T{(first + k) % 24:02}:00:00Z"}
        for k, user in enumerate(users)
    ]  # fmt: skip


def headrace(*arguments: object) -> None:
    """A command that ends by itself."""
    done = subprocess.run([sys.executable, "-m", "headrace", *map(str, arguments)], capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr.decode()[-4000:])


@contextmanager
def importing(place: str, home: Path, every_secs: float, output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command that feeds the table, which ends with the context."""
    command = [sys.executable, "-m", "headrace", "table", "add", _TABLE, place, "--home", str(home), "--follow", "--every", f"{every_secs:g}s"]  # fmt: skip
    with open(output, "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(_MOST_SECS)


@dataclass
class Server:
    """Applies links until :attr:`ends` is set.

    Attributes:
        applied: the epochs of the commit of each link, and when it was applied, in seconds since the epoch.
    """

    job: Job
    served: Path
    number: int
    ends: threading.Event = field(default_factory=threading.Event)
    applied: list[tuple[int, float]] = field(default_factory=list)

    def serve(self) -> None:
        """Apply each link that comes."""
        while not self.ends.is_set():
            newest = max(one.number for one in link_places(open_chain(self.job.chain)))
            if newest > self.number:
                apply_chain(self.job.chain, self.served)
                at = time.time()
                new = [one for one in read_chain(self.job.chain) if self.number < one.manifest.number <= newest]
                self.applied += [(one.manifest.commit.epochs, at) for one in new]
                self.number = newest
            time.sleep(_LOOK_SECS)


def send(broker: Broker, first: int, given: argparse.Namespace, draw: np.random.Generator) -> list[float]:
    """Write single messages at random moments; when each was written."""
    chance, sent = random.Random(given.seed), list[float]()
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address, "linger.ms": 0})
    end = time.monotonic() + given.secs
    while time.monotonic() < end:
        time.sleep(chance.expovariate(given.rate))
        sent.append(time.time())
        (message,) = messages(first + len(sent) - 1, 1, draw)
        producer.produce(_TOPIC, json.dumps(message).encode(), partition=0)
        producer.poll(0)
    assert producer.flush(_MOST_SECS) == 0
    return sent


def latencies(
    sent: Sequence[float], first: int, trained: Sequence[int], applied: Sequence[tuple[int, float]]
) -> list[float]:
    """The seconds from each message to the first link that has it.

    Args:
        sent: when each message after the ``first`` ones was written.
        first: the messages before them.
        trained: the events of each epoch.
        applied: see :class:`Server`.
    """
    upto = [0, *accumulate(trained)]
    found, place = [], 0
    for k, at in enumerate(sent):
        while upto[applied[place][0]] <= first + k:
            place += 1
        found.append(applied[place][1] - at)
    return found


def main() -> int:
    """Measure and print; the exit status is 1 if an event was lost or repeated, or other weights than those of the newest commit are served."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--secs", type=float, default=120.0, help="for which messages are written")
    parser.add_argument("--rate", type=float, default=20.0, help="messages a second")
    parser.add_argument("--history", type=int, default=20_000, help="messages before them")
    parser.add_argument("--servers", type=int, default=0, help="parameter servers that hold the tables")
    parser.add_argument("--every", type=float, default=0.5, help="seconds for which the import collects a batch")
    parser.add_argument("--poll-secs", type=float, default=0.5, help="of the job")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a few seconds, to test the script")
    given = parser.parse_args()
    if given.quick:
        given.secs, given.history = 10.0, 2_000
    if PARTS.is_missing():
        raise SystemExit("no broker here: python -m tests.kafka.install")
    draw = np.random.default_rng(given.seed)
    with tempfile.TemporaryDirectory(prefix="headrace-topic-") as name, running(Path(name) / "broker") as broker:
        folder = Path(name)
        home, served = folder / "home", folder / "served"
        broker.create(_TOPIC, 1)
        broker.produce(_TOPIC, messages(0, given.history, draw))
        headrace("table", "add", _TABLE, broker.place(_TOPIC), "--home", home, "--time-column", "time", "--partition-by", "day")  # fmt: skip
        with Warehouse.open(WarehouseConfig(str(home))) as warehouse:
            submit_model(warehouse, clicks_model(), policy="none")
        print(f"{machine()}; a batch of the import collects for {given.every:g} s, the job looks every {given.poll_secs:g} s", flush=True)  # fmt: skip
        with (
            importing(broker.place(_TOPIC), home, given.every, folder / "importer"),
            following(folder, home, "ctr", given) as job,
        ):
            server = Server(job, served, wait_until_caught_up(job, served))
            thread = threading.Thread(target=server.serve)
            thread.start()
            sent = send(broker, given.history, given, draw)
            _wait_for(job, given.history + len(sent))
            _wait_until_served(job, server)
            server.ends.set()
            thread.join()
        saved = read_newest_run(str(job.run), on_skip=_refuse, weights=False)
        assert saved is not None
        trained = [one.scores.events for one in saved.progress.history]
        found = latencies(sent, given.history, trained, server.applied)
        print(f"{len(sent):,} messages in {given.secs:g} s, {len(server.applied)} links: from a message to served weights, median {np.median(found):.2f} s, "
              f"p99 {np.percentile(found, 99):.2f} s, from {min(found):.2f} s to {max(found):.2f} s")  # fmt: skip
        is_whole = sum(trained) == given.history + len(sent)
        is_newest = read_chain(job.chain)[-1].manifest.commit == served_commit(newest_commit(open_run(job.run)))
        print(f"each message trained once: {'yes' if is_whole else 'NO'}; the newest commit is served: {'yes' if is_newest else 'NO'}")  # fmt: skip
    return 0 if is_whole and is_newest else 1


def _wait_for(job: Job, events: int) -> None:
    """Wait until so many events are in the newest commit."""
    end = time.monotonic() + _MOST_SECS
    while time.monotonic() < end:
        job.check()
        saved = read_newest_run(str(job.run), on_skip=_pass_over, weights=False, verifies_all=False)
        if saved is not None and sum(one.scores.events for one in saved.progress.history) >= events:
            return
        time.sleep(0.5)
    raise SystemExit(f"{events:,} events are not committed in {_MOST_SECS:g} s")


def _wait_until_served(job: Job, server: Server) -> None:
    """Wait until the link of the newest commit is applied."""
    newest, end = newest_commit(open_run(job.run)), time.monotonic() + _MOST_SECS
    while server.applied[-1][0] < served_commit(newest).epochs:
        job.check()
        if time.monotonic() > end:
            raise SystemExit(f"the newest commit is not served in {_MOST_SECS:g} s")
        time.sleep(0.1)


def _refuse(reason: str) -> None:
    raise SystemExit(reason)


def _pass_over(reason: str) -> None:
    """A commit that is removed while it is read."""


if __name__ == "__main__":
    sys.exit(main())
