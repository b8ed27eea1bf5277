from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.support.processes import PATIENCE_SECS
from tests.trainer.run.reading.test_unit_reader import DATA, DIGEST, LAYOUT, events_in, events_of, reader_of
from trainer.errors import BadFeature, DamagedFrame, DataNotReady
from trainer.run.reading.batches import make_batches
from trainer.run.reading.packed_units import UnitDecoder
from trainer.run.reading.reader_service import ReaderService
from trainer.run.reading.unit_buffer import FetchSettings, UnitBuffer
from trainer.run.reading.unit_fetching import LOCAL, LocalFetcher, RemoteFetcher
from trainer.run.reading.unit_requests import UnitRequest
from trainer.scheduling.assignment import AssignmentSettings
from trainer.scheduling.buffer_control import BufferSettings
from trainer.wire.flight.addresses import Address
from trainer.wire.flight.error_documents import BadAnswer, RemoteError, Unreachable
from trainer.wire.frames import damaged
from transforms.errors import StorageError

LOOPBACK = Address("127.0.0.1", 0)
QUICK = FetchSettings(retry_secs=0.05, most_retry_secs=0.2, tick_secs=0.01)
#: (key, rows) of all fragments.
FRAGMENTS = [(f"hour=0{hour}#{k}", f"hour=0{hour}/{k}.parquet", 60 + 17 * k) for hour in range(2) for k in range(2)]


def requests_of(count, *, first=0, attempt=1, rows=11):
    """Units of all fragments in turn, repeated."""
    found = []
    while len(found) < count:
        for key, _, most in FRAGMENTS:
            found += [(key, start, min(rows, most - start)) for start in range(0, most, rows)]
    return [UnitRequest(first + n, attempt, DIGEST, *unit) for n, unit in enumerate(found[:count])]


def buffer_of(requests, fetchers, **options):
    """A buffer over fetchers by name, or over addresses."""
    options.setdefault("fetching", QUICK)

    def connect(name):
        return fetchers[name]() if name in fetchers else RemoteFetcher(name, timeout_secs=10)

    return UnitBuffer(requests, connect, UnitDecoder(LAYOUT), **options)


def local(read=None):
    reader = reader_of(read, kept_bytes=0)
    return lambda: LocalFetcher(reader)


def events_of_requests(requests):
    paths = {key: path for key, path, _ in FRAGMENTS}
    return [
        event
        for one in requests
        for event in events_of(DATA.tables[paths[one.fragment]].slice(one.first_row, one.rows))
    ]


def taken(buffer):
    """The numbers of all units, and their events."""
    units = list(buffer)
    batches = make_batches([decoded for _, decoded in units], LAYOUT, batch_rows=16)
    return [request.number for request, _ in units], events_in(batches)


def wait_for(condition, secs=10.0):
    until = time.monotonic() + secs
    while not condition():
        assert time.monotonic() < until, "the condition must become true"
        time.sleep(0.005)


@contextmanager
def process(secs):
    command = [sys.executable, "-m", "tests.trainer.run.reading.reader_process", str(secs)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        try:
            yield running, running.stdout.readline().strip()
        finally:
            running.kill()


def test_units_come_in_order_from_a_reader_in_the_same_process():
    requests = requests_of(60)
    with closing(buffer_of(requests, {LOCAL: local()})) as buffer:
        buffer.set_readers([LOCAL])
        assert taken(buffer) == (list(range(60)), events_of_requests(requests))


def test_units_come_in_order_from_many_readers_of_different_speed():
    def slow(secs):
        draw = np.random.default_rng(0)

        def read(_solution, fragment):
            time.sleep(secs * draw.random())
            return DATA.tables[fragment.path]

        return reader_of(read, kept_bytes=0)

    requests = requests_of(80)
    services = [ReaderService(LOOPBACK, slow(secs)) for secs in (0.0, 0.01, 0.03)]
    try:
        with closing(buffer_of(requests, {})) as buffer:
            buffer.set_readers([str(service.address) for service in services])
            assert taken(buffer) == (list(range(80)), events_of_requests(requests))
            sample = buffer.sample()
            assert (sample.consumed_rows, sample.served_units) == (sum(one.rows for one in requests), 80)
            assert sample.left_units == 0
        assert all(service.status()["units"] > 0 for service in services)
    finally:
        for service in services:
            service.close()


@pytest.mark.medium
def test_a_reader_that_is_killed_is_replaced_by_the_others():
    requests = requests_of(150)
    with process(0.02) as (one, first), process(0.02) as (_, second), closing(buffer_of(requests, {})) as buffer:
        buffer.set_readers([first, second])
        begun = [next(buffer) for _ in range(20)]
        os.kill(one.pid, signal.SIGKILL)
        killed = time.monotonic()
        rest = [next(buffer) for _ in range(30)]
        assert time.monotonic() - killed < 2.0, "from the loss of a reader to full speed"
        rest += list(buffer)
        assert [request.number for request, _ in begun + rest] == list(range(150))
        batches = make_batches([decoded for _, decoded in begun + rest], LAYOUT, batch_rows=16)
        assert events_in(batches) == events_of_requests(requests)


def test_without_a_reader_the_host_waits_and_is_starved():
    requests = requests_of(20)
    with closing(buffer_of(requests, {LOCAL: local()})) as buffer:
        assert buffer.take(0.05) is None
        sample = buffer.sample()
        assert (sample.fullness, sample.consumed_rows, sample.busy_secs) == (0.0, 0, 0.0)
        assert sample.left_units > 0
        buffer.set_readers(["127.0.0.1:1"])  # not there
        assert buffer.take(0.2) is None
        buffer.set_readers(["127.0.0.1:1", LOCAL])
        assert taken(buffer) == (list(range(20)), events_of_requests(requests))


def test_a_reader_that_comes_back_at_its_address_is_asked_again():
    requests = requests_of(40)
    first = ReaderService(LOOPBACK, reader_of())
    with closing(buffer_of(requests, {})) as buffer:
        buffer.set_readers([str(first.address)])
        begun = [next(buffer)[0].number for _ in range(5)]
        first.close()
        while (found := buffer.take(0.3)) is not None:  # what was in the buffer
            begun.append(found[0].number)
            if len(begun) == 40:
                break
        with ReaderService(first.address, reader_of()):
            assert begun + [request.number for request, _ in buffer] == list(range(40))


def test_the_set_of_readers_may_change_at_any_time():
    requests = requests_of(200)
    draw = np.random.default_rng(1)
    names = [f"r{n}" for n in range(4)]
    with closing(buffer_of(requests, dict.fromkeys(names, local()))) as buffer:
        numbers = []
        for request, _ in buffer_with(buffer, names):
            numbers.append(request.number)
            buffer.set_readers([name for name in names if draw.random() < 0.5] or names[:1])
        assert numbers == list(range(200))


def test_a_reader_that_is_gone_for_a_moment_gets_its_units_again():
    begun, go_on, calls = threading.Event(), threading.Event(), []

    def read(_solution, fragment):
        calls.append(fragment)
        if len(calls) == 1:
            begun.set()
            go_on.wait(PATIENCE_SECS)
        return DATA.tables[fragment.path]

    fetchers = {"a": local(read)}
    with closing(buffer_of(requests_of(20), fetchers, settings=BufferSettings(units_per_reader=1))) as buffer:
        buffer.set_readers(["a"])
        assert begun.wait(PATIENCE_SECS)
        fetchers["a"] = local()  # a new process at the same address
        buffer.set_readers([])
        buffer.set_readers(["a"])
        assert taken(buffer)[0] == list(range(20))
        assert not go_on.is_set()
        go_on.set()


def buffer_with(buffer, readers):
    buffer.set_readers(readers)
    return buffer


def test_a_straggler_is_served_by_a_second_reader_and_delivered_once():
    stuck = threading.Event()

    def read(_solution, fragment):
        if fragment.path == "hour=01/0.parquet":
            stuck.wait(PATIENCE_SECS)
        return DATA.tables[fragment.path]

    requests = requests_of(60)
    assigning = AssignmentSettings(straggler_secs=0.05, least_measured=2)
    fetchers = {"a": local(read), "b": local()}
    with closing(buffer_of(requests, fetchers, assigning=assigning)) as buffer:
        buffer.set_readers(["a", "b"])
        assert taken(buffer) == (list(range(60)), events_of_requests(requests))
        assert not stuck.is_set()
        stuck.set()
        assert buffer.sample().served_units == 60


def failing(error, times):
    """A read function that raises an error for one fragment, so many times."""
    left = [times]

    def read(_solution, fragment):
        if fragment.path == "hour=00/1.parquet" and left[0]:
            left[0] -= 1
            raise error
        return DATA.tables[fragment.path]

    return read


FIRST_OF_SECOND = 6  # the number of the first unit of hour=00/1.parquet


@pytest.mark.parametrize("error", [BadFeature("bad"), DataNotReady("not yet"), MemoryError("no memory")])
def test_an_error_that_would_repeat_comes_in_place_of_its_unit(error):
    with closing(buffer_of(requests_of(20), {LOCAL: local(failing(error, -1))})) as buffer:
        buffer.set_readers([LOCAL])
        assert [next(buffer)[0].number for _ in range(FIRST_OF_SECOND)] == list(range(FIRST_OF_SECOND))
        for _ in range(2):
            with pytest.raises(type(error)):
                next(buffer)


def test_an_error_of_another_process_comes_with_its_kinds():
    service = ReaderService(LOOPBACK, reader_of(failing(BadFeature("bad"), -1)))
    with service, closing(buffer_of(requests_of(20), {})) as buffer:
        buffer.set_readers([str(service.address)])
        with pytest.raises(RemoteError, match="bad") as caught:
            list(buffer)
        assert caught.value.kinds[0] == "BadFeature"


def test_a_transient_error_is_tried_on_another_reader():
    fetchers = {"a": local(failing(StorageError("503"), -1)), "b": local()}
    with closing(buffer_of(requests_of(40), fetchers)) as buffer:
        buffer.set_readers(["a", "b"])
        assert taken(buffer)[0] == list(range(40))


def test_a_transient_error_that_repeats_is_raised():
    with closing(buffer_of(requests_of(20), {LOCAL: local(failing(StorageError("503"), -1))})) as buffer:
        buffer.set_readers([LOCAL])
        with pytest.raises(StorageError, match="503"):
            list(buffer)


def test_a_transient_error_that_ends_is_not_noticed():
    with closing(buffer_of(requests_of(20), {LOCAL: local(failing(StorageError("503"), 2))})) as buffer:
        buffer.set_readers([LOCAL])
        assert taken(buffer)[0] == list(range(20))


class Failing(LocalFetcher):
    """Fails a transient way at first, and notes when it was asked."""

    def __init__(self, failures):
        super().__init__(reader_of())
        self.left, self.asked_secs = failures, []

    def fetch(self, request, admit):
        self.asked_secs.append(time.monotonic())
        if self.left:
            self.left -= 1
            raise StorageError("503")
        return super().fetch(request, admit)


def test_the_only_reader_is_asked_again_after_a_pause_that_doubles():
    fetcher, fetching = Failing(2), FetchSettings(retry_secs=0.1, tick_secs=0.01)
    with closing(buffer_of(requests_of(1), {"only": lambda: fetcher}, fetching=fetching)) as buffer:
        buffer.set_readers(["only"])
        assert taken(buffer)[0] == [0]
    first, second, third = fetcher.asked_secs
    assert second - first >= 0.1
    assert third - second >= 0.2


def test_a_unit_goes_to_another_reader_without_a_pause():
    fetchers = {"a": Failing(1), "b": Failing(1)}
    fetching = FetchSettings(retry_secs=100 * PATIENCE_SECS, tick_secs=0.01)
    with closing(buffer_of(requests_of(1), {name: lambda one=one: one for name, one in fetchers.items()}, fetching=fetching)) as buffer:  # fmt: skip
        buffer.set_readers([*fetchers])
        assert buffer.take(PATIENCE_SECS) is not None
    assert sum(len(one.asked_secs) for one in fetchers.values()) == 3


def test_an_oversized_unit_is_an_error_and_no_loss_of_its_reader():
    with ReaderService(LOOPBACK, reader_of()) as service:
        small = lambda: RemoteFetcher(str(service.address), timeout_secs=5, most_bytes=300)  # noqa: E731
        with closing(buffer_of(requests_of(3), {"small": small})) as buffer:
            buffer.set_readers(["small"])
            with pytest.raises(BadAnswer, match="short enough"):
                next(buffer)


def test_a_reader_that_answers_badly_is_left_for_the_others():
    requests = requests_of(40)
    asked = []
    errors = itertools.cycle([BadAnswer("a unit must have the format of this release"), damaged("rest does not come")])

    class Bad(LocalFetcher):
        def fetch(self, request, admit):
            asked.append(request.number)
            raise next(errors)

    bad = {name: lambda: Bad(reader_of()) for name in ("bad-1", "bad-2", "bad-3", "bad-4")}
    with closing(buffer_of(requests, {**bad, "good": local()})) as buffer:
        buffer.set_readers([*bad, "good"])
        assert taken(buffer) == ([one.number for one in requests], events_of_requests(requests))
    assert asked
    with closing(buffer_of(requests, bad)) as buffer:
        buffer.set_readers([*bad])
        with pytest.raises((BadAnswer, DamagedFrame)):
            next(buffer)


def test_a_reader_that_leaves_is_not_asked_and_costs_no_failure():
    leaving, staying = (ReaderService(LOOPBACK, reader_of()) for _ in range(2))
    fetching = FetchSettings(most_failures=1, tick_secs=0.01)
    with leaving, staying, closing(buffer_of(requests_of(60), {}, fetching=fetching)) as buffer:
        buffer.set_readers([str(leaving.address), str(staying.address)])
        begun = [next(buffer)[0].number for _ in range(3)]
        assert leaving.leave(10)
        assert begun + [request.number for request, _ in buffer] == list(range(60))


def test_the_buffer_is_bounded_in_bytes_whatever_the_number_of_readers():
    requests = requests_of(120)
    sizes = [reader_of().read(one).size_bytes for one in requests[:30]]
    limit = 5 * max(sizes)
    options = {
        "settings": BufferSettings(limit_bytes=limit),
        "fetching": FetchSettings(first_bytes=1, tick_secs=0.01),
    }
    names = [f"r{n}" for n in range(8)]
    with closing(buffer_of(requests, dict.fromkeys(names, local()), **options)) as buffer:
        buffer.set_readers(names)
        most = 0.0
        for _ in range(120):
            time.sleep(0.002)
            most = max(most, buffer.sample().fullness)
            next(buffer)
    assert 0.6 < most <= 1.0 + max(sizes) / limit


def test_a_unit_larger_than_the_buffer_is_trained_alone():
    with closing(buffer_of(requests_of(20), {LOCAL: local()}, settings=BufferSettings(limit_bytes=1))) as buffer:
        buffer.set_readers([LOCAL])
        assert taken(buffer)[0] == list(range(20))


def test_a_later_unit_that_waits_for_space_gives_way_to_the_next_one():
    """The only reader that is left has one slot, in which a later unit waits until the host has trained the next one."""
    begun, go_on = threading.Event(), threading.Event()

    def read(_solution, fragment):
        begun.set()
        go_on.wait(PATIENCE_SECS)
        return DATA.tables[fragment.path]

    options = {"settings": BufferSettings(limit_bytes=2, units_per_reader=1)}
    options["fetching"] = FetchSettings(
        first_bytes=1, tick_secs=0.01
    )  # units are larger than it seems: two are requested
    with closing(buffer_of(requests_of(12), {"a": local(read), "b": local()}, **options)) as buffer:
        buffer.set_readers(["a", "b"])
        assert begun.wait(PATIENCE_SECS)
        time.sleep(0.1)
        buffer.set_readers(["b"])
        changed = time.monotonic()
        assert taken(buffer)[0] == list(range(12))
        assert time.monotonic() - changed < 5.0
        go_on.set()


def test_two_readers_that_deliver_a_unit_at_once_take_space_once():
    both, decodes = threading.Barrier(2), []

    class Meeting(LocalFetcher):
        def fetch(self, request, admit):
            if request.number == 8 and not decodes:
                both.wait(PATIENCE_SECS)
            return super().fetch(request, admit)

    decoder = UnitDecoder(LAYOUT)

    def decode(request, delivered):
        if request.number == 8:
            decodes.append(request)
            time.sleep(0.2)
        return decoder(request, delivered)

    assigning = AssignmentSettings(straggler_secs=0.02, least_measured=2)
    connect = lambda name: Meeting(reader_of())  # noqa: E731
    with closing(UnitBuffer(requests_of(30), connect, decode, assigning=assigning, fetching=QUICK)) as buffer:
        buffer.set_readers(["a", "b"])
        assert taken(buffer)[0] == list(range(30))
        assert len(decodes) == 1
        assert buffer.sample().fullness == 0.0


def test_iteration_ends_before_a_unit_and_goes_on():
    with closing(buffer_of(requests_of(40), {LOCAL: local()})) as buffer:
        buffer.set_readers([LOCAL])
        buffer.stop_before(10)
        assert taken(buffer)[0] == list(range(10))
        assert taken(buffer)[0] == []
        buffer.stop_before(25)
        assert taken(buffer)[0] == list(range(10, 25))
        buffer.stop_before(None)
        assert taken(buffer)[0] == list(range(25, 40))
        buffer.extend(requests_of(5, first=40))
        assert taken(buffer)[0] == list(range(40, 45))


def test_the_limit_ends_a_host_that_waits():
    with closing(buffer_of(requests_of(10), {})) as buffer:
        timer = threading.Timer(0.05, buffer.stop_before, (0,))
        timer.start()
        assert list(buffer) == []


def test_a_restart_discards_what_was_requested_before():
    go_on = threading.Event()

    def read(_solution, fragment):
        if fragment.path == "hour=00/1.parquet":
            go_on.wait(PATIENCE_SECS)
        return DATA.tables[fragment.path]

    with closing(buffer_of(requests_of(40), {LOCAL: local(read)})) as buffer:
        buffer.set_readers([LOCAL])
        assert [next(buffer)[0].number for _ in range(3)] == [0, 1, 2]
        again = requests_of(20, first=1, attempt=2, rows=7)
        buffer.restart(again)
        go_on.set()
        units = list(buffer)
        assert [request for request, _ in units] == again
        batches = make_batches([decoded for _, decoded in units], LAYOUT, batch_rows=16)
        assert events_in(batches) == events_of_requests(again)


def test_an_error_of_the_requests_comes_after_what_was_requested():
    def requests():
        yield from requests_of(5)
        raise DataNotReady("no more units")

    with closing(buffer_of(requests(), {LOCAL: local()})) as buffer:
        buffer.set_readers([LOCAL])
        assert [next(buffer)[0].number for _ in range(5)] == list(range(5))
        with pytest.raises(DataNotReady):
            next(buffer)


def test_the_host_is_busy_only_while_it_has_units():
    now = [0.0]
    with closing(buffer_of(requests_of(30), {LOCAL: local()}, clock=lambda: now[0])) as buffer:
        now[0] = 5.0  # no unit was asked for yet
        buffer.set_readers([LOCAL])
        first = next(buffer)[0]
        buffer.sample()
        now[0] = 7.0
        next(buffer)
        now[0] = 8.0
        sample = buffer.sample()
        assert sample.busy_secs == 3.0
        assert sample.consumed_rows == requests_of(2)[1].rows
        assert first.number == 0
        buffer.stop_before(2)
        list(buffer)
        now[0] = 100.0  # the host has no work
        assert buffer.sample().busy_secs == 0.0


def test_a_host_that_rests_is_not_busy_although_units_are_left():
    """As between two attempts of which the first one ended early."""
    now = [0.0]
    with closing(buffer_of(requests_of(30), {LOCAL: local()}, clock=lambda: now[0])) as buffer:
        buffer.set_readers([LOCAL])
        next(buffer)
        buffer.sample()
        now[0] = 2.0
        buffer.rest()
        now[0] = 50.0
        assert buffer.sample().busy_secs == 2.0
        next(buffer)
        now[0] = 53.0
        assert buffer.sample().busy_secs == 3.0


def test_closing_ends_all_threads_and_iteration():
    before = set(threading.enumerate())
    buffer = buffer_of(requests_of(1000), {LOCAL: local()})
    buffer.set_readers([LOCAL])
    next(buffer)
    began = time.monotonic()
    buffer.close()
    assert time.monotonic() - began < 1.0
    assert list(buffer) == []
    assert set(threading.enumerate()) <= before
    buffer.close()


@pytest.mark.parametrize("seed", range(3))
def test_units_come_in_order_whatever_happens_to_readers(seed):
    """Readers that are slow, fail, are lost, leave and come back, in a small buffer, and a host that stops and starts again."""
    draw = np.random.default_rng(seed)
    lock = threading.Lock()

    def random():
        with lock:
            return draw.random()

    class Troubled(LocalFetcher):
        def __init__(self):
            super().__init__(reader_of())
            self.gone = False

        def fetch(self, request, admit):
            chance = random()
            if self.gone or chance < 0.03:
                self.gone = chance < 0.01
                raise Unreachable("a service must answer")
            if chance < 0.06:
                raise StorageError("503")
            time.sleep(0.05 if chance < 0.1 else 0.001)
            return super().fetch(request, admit)

        def probe(self):
            if self.gone:
                raise Unreachable("a service must answer")

    names = [f"r{n}" for n in range(4)]
    options = {
        "settings": BufferSettings(
            limit_bytes=int(draw.choice([1, 4000, 40_000])), units_per_reader=int(draw.integers(1, 4))
        ),
        "assigning": AssignmentSettings(straggler_secs=0.01, least_measured=2),
        "fetching": FetchSettings(
            most_failures=50, retry_secs=0.005, most_retry_secs=0.05, tick_secs=0.005, first_bytes=1
        ),
    }
    requests = requests_of(300)
    with closing(buffer_of(requests, dict.fromkeys(names, Troubled), **options)) as buffer:
        buffer.set_readers(names)
        number, until = 0, time.monotonic() + 60
        while number < 300:
            assert time.monotonic() < until, f"unit {number} must come"
            chance = random()
            if chance < 0.05:
                buffer.set_readers([name for name in names if random() < 0.6] or names[1:])
            elif chance < 0.06:
                number = int(number * random())
                buffer.restart(requests[number:])
            elif chance < 0.08:
                buffer.stop_before(number)
                assert list(buffer) == []
                buffer.stop_before(None)
            found = buffer.take(0.02)
            if found is not None:
                assert found[0] == requests[number]
                number += 1
        sample = buffer.sample()
        assert (sample.fullness, sample.left_units) == (0.0, 0)
