from __future__ import annotations

import threading

import pytest

from pipelines.worker.catalog_retry import CatalogRetry
from transforms.errors import InputError
from warehouse.errors import CatalogLost, CommitInDoubt


class Catalog:
    """Answers after it was asked ``failures`` times."""

    def __init__(self, failures: int, error: Exception | None = None) -> None:
        self.left, self.error, self.asked = failures, error or CatalogLost("no connection"), 0

    def __call__(self) -> str:
        self.asked += 1
        self.left -= 1
        if self.left >= 0:
            raise self.error
        return "here"


class Stop(threading.Event):
    """Waits no time, and moves the clock on by what it was asked to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waits.append(timeout)
        self.now += timeout
        return self.is_set()


def catalog_retry(stop: Stop, secs: float, retries: list[int]) -> CatalogRetry:
    return CatalogRetry(secs, stop, lambda: retries.append(1), lambda: 0.0, lambda: stop.now)


def test_waits_for_the_catalog_grow_until_it_is_back() -> None:
    stop, retries = Stop(), list[int]()
    assert catalog_retry(stop, 600, retries).call(Catalog(7)) == "here"
    assert stop.waits == [0.25, 0.5, 1.0, 2.0, 4.0, 7.5, 7.5]
    assert len(retries) == 7


def test_the_retry_ends() -> None:
    stop, catalog = Stop(), Catalog(10**9)
    with pytest.raises(CatalogLost):
        catalog_retry(stop, 20, []).call(catalog)
    assert stop.now == pytest.approx(20)
    with pytest.raises(CatalogLost):
        catalog_retry(Stop(), 0, []).call(catalog := Catalog(1))
    assert catalog.asked == 1


def test_a_commit_in_doubt_is_asked_for_again() -> None:
    assert catalog_retry(Stop(), 600, []).call(Catalog(1, CommitInDoubt("it broke meanwhile"))) == "here"


def test_a_stopped_worker_does_not_wait() -> None:
    stop = Stop()
    stop.set()
    with pytest.raises(CatalogLost):
        catalog_retry(stop, 600, []).call(Catalog(1))
    assert stop.waits == []


def test_other_errors_are_raised_at_once() -> None:
    catalog = Catalog(1, InputError("no such table"))
    with pytest.raises(InputError):
        catalog_retry(Stop(), 600, []).call(catalog)
    assert catalog.asked == 1
