"""What a host reports of an attempt that ends by an error."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.support.processes import PATIENCE_SECS
from trainer.errors import AttemptOver
from trainer.job.host.host import Host
from trainer.job.host.mailbox import Mailbox
from trainer.scheduling.orders import BEGINNING, GiveUp, Leave, StartEpoch
from transforms.errors import StorageError


class Buffer:
    """A buffer of units that no attempt asks for one."""

    def set_readers(self, readers) -> None:
        """There are none."""

    def close(self) -> None:
        """Nothing runs."""


class Reports:
    """Notes failures."""

    def __init__(self) -> None:
        self.failures: list[tuple[int, str]] = []
        self.changed = threading.Condition()

    def fail(self, attempt: int, error: BaseException) -> None:
        with self.changed:
            self.failures.append((attempt, type(error).__name__))
            self.changed.notify_all()


class Failing(Host):
    """A host whose attempts end by an error, once they may."""

    def __init__(self, folder: Path, error: Exception) -> None:
        super().__init__("h0", str(folder), folder=folder, find_document=lambda name: b"", make_buffer=lambda decode: Buffer(), mailbox=Mailbox())  # type: ignore[arg-type]  # fmt: skip
        self.error, self.reports = error, Reports()
        self.begun, self.may_fail = threading.Event(), threading.Event()
        self.connect(self.reports)  # type: ignore[arg-type]

    def _train(self, order: StartEpoch) -> None:
        self.begun.set()
        assert self.may_fail.wait(PATIENCE_SECS)
        raise self.error


def start(attempt: int) -> StartEpoch:
    return StartEpoch(attempt, 0, 0, 4, ("h0",), None, BEGINNING, "plan")


@pytest.fixture
def run_host(tmp_path):
    """Runs a host until the test has ended."""
    running = []

    def run(error: Exception) -> Failing:
        host = Failing(tmp_path, error)
        thread = threading.Thread(target=host.run)
        thread.start()
        running.append((host, thread))
        host.on_orders((start(1),), ())
        assert host.begun.wait(PATIENCE_SECS)
        return host

    yield run
    for host, thread in running:
        host.may_fail.set()
        host.on_orders((Leave("the test is over"),), ())
        thread.join(PATIENCE_SECS)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    "error", [StorageError("a disk must answer"), AttemptOver("the client has opened a newer session")]
)
def test_an_attempt_that_ends_without_an_order_is_a_failure(run_host, error):
    """Also by the word of a server: the controller would wait for it for ever."""
    host = run_host(error)
    host.may_fail.set()
    with host.reports.changed:
        assert host.reports.changed.wait_for(lambda: host.reports.failures, PATIENCE_SECS)
    assert host.reports.failures == [(1, type(error).__name__)]


@pytest.mark.parametrize("orders", [(GiveUp(1),), (start(2),), (Leave("preemption notice"),)])
def test_an_attempt_that_was_given_up_is_none(run_host, orders):
    host = run_host(AttemptOver("the attempt was given up"))
    host.on_orders(orders, ())
    host.begun.clear()
    host.may_fail.set()
    if isinstance(orders[0], StartEpoch):
        assert host.begun.wait(PATIENCE_SECS), "it goes on with the next one"
    failed = [attempt for attempt, _ in host.reports.failures]
    assert 1 not in failed
