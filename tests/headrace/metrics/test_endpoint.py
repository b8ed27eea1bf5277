"""The endpoint of a process, with a registry of one gauge."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from random import Random

import pytest

from headrace.cli.options.metrics import MetricsOptions
from headrace.metrics.address import MetricsAddress
from headrace.metrics.endpoint import Endpoint
from headrace.metrics.exposition import anonymous_name
from headrace.metrics.process import Process
from headrace.metrics.targets import listed_target, target_file
from tests.support.examples import scaled
from tests.support.mutations import mutated
from tests.support.processes import PATIENCE_SECS, wait_until
from tests.support.scraped import Figures, scrape, target
from transforms.errors import InputError, StorageError
from transforms.metrics.declarations import durations, gauge
from transforms.metrics.families import by_labels, single
from transforms.metrics.instruments import Histogram
from transforms.metrics.registry import Registry

TASKS = gauge("headrace_queue_tasks", "Tasks.", "client", "state")
STEPS = durations("headrace_host_step_seconds", "Steps.")
LOOPBACK = MetricsAddress("127.0.0.1", 0)


def registry(name: str = "search\n\"'\\") -> Registry:
    found, steps = Registry(), Histogram()
    steps.observe(0.002)
    steps.observe(1e9)
    found.add("queue", lambda: [by_labels(TASKS, [((name, "queued"), 3.0)]), single(STEPS, steps.reading())])
    return found


@contextmanager
def served(*, is_anonymous: bool = False, address: MetricsAddress = LOOPBACK) -> Iterator[str]:
    with Endpoint(address, is_anonymous=is_anonymous) as endpoint:
        endpoint.serve(registry())
        yield str(endpoint.address)


def test_a_scrape_has_names_labels_and_cumulative_buckets():
    with served() as address:
        found = scrape(address)
    assert found["headrace_queue_tasks", (("client", "search\n\"'\\"), ("state", "queued"))] == 3
    assert found["headrace_host_step_seconds_bucket", (("le", "0.001"),)] == 0
    assert found["headrace_host_step_seconds_bucket", (("le", "0.003"),)] == 1
    assert found["headrace_host_step_seconds_bucket", (("le", "+Inf"),)] == 2
    assert found["headrace_host_step_seconds_count", ()] == 2
    assert found["headrace_host_step_seconds_sum", ()] == 1e9 + 0.002
    assert found["process_resident_memory_bytes", ()] > 0


def test_names_of_clients_are_hashed_and_no_others():
    with served(is_anonymous=True) as address:
        found = scrape(address)
    names = [dict(labels) for name, labels in found if name == "headrace_queue_tasks"]
    assert names == [{"client": anonymous_name("search\n\"'\\"), "state": "queued"}]
    assert anonymous_name("a") != anonymous_name("b")


def test_a_taken_address_is_refused():
    with Endpoint(LOOPBACK) as endpoint, pytest.raises(InputError, match="address") as caught:
        Endpoint(endpoint.address)
    assert str(endpoint.address.port) in str(caught.value)
    with pytest.raises(InputError, match="address"):
        Endpoint(MetricsAddress("192.0.2.1", 0))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("9464", "127.0.0.1:9464"), (":0", "127.0.0.1:0"), ("0.0.0.0:1", "0.0.0.0:1"), ("[::1]:9464", "[::1]:9464"), ("w-1.jobs:80", "w-1.jobs:80")],
)  # fmt: skip
def test_an_address_may_be_a_port_alone(text, expected):
    assert str(MetricsAddress.parse(text)) == expected
    assert MetricsAddress.parse(expected) == MetricsAddress.parse(text)


@pytest.mark.parametrize(
    "text", ["", "host", "host:", "host:65536", "a b:1", "$(id):1", "host:١", "-:1", "1:" + "9" * 400]
)
def test_another_text_is_no_address(text):
    with pytest.raises(InputError, match="HOST:PORT"):
        MetricsAddress.parse(text)


def test_ipv6_is_served():
    with served(address=MetricsAddress("::1", 0)) as address:
        assert address.startswith("[::1]:")
        assert scrape(address)


def test_a_child_serves_at_the_address_of_its_parent():
    """As a parameter server does: its child is killed, and the next one has the same address."""
    with Endpoint(LOOPBACK) as endpoint:
        for _ in range(2):
            child = os.fork()
            if not child:
                try:
                    endpoint.serve(registry())
                    signal.pause()
                finally:
                    os._exit(0)
            try:
                assert scrape(str(endpoint.address))
            finally:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


def test_a_file_names_the_address_while_it_is_served(tmp_path):
    folder = tmp_path / "targets"
    with MetricsOptions("127.0.0.1:0", str(folder)).bound(Process("host", "h 0", run="runs/ctr-v1")) as serve:
        serve(registry())
        (file,) = folder.iterdir()
        assert file.name.startswith("host-h-0-")
        assert file.suffix == ".json"
        (found,) = json.loads(file.read_text())
        assert found["labels"] == {"role": "host", "name": "h 0", "run": "runs/ctr-v1"}
        figures = scrape(target(file))
        assert [dict(labels)["role"] for name, labels in figures if name == "headrace_process_info"] == ["host"]
    assert list(folder.iterdir()) == []


def test_processes_have_files_of_their_own(tmp_path):
    processes = [Process("host", "h0", run) for run in ("a", "b", "")] + [Process("embedding_worker", "h0", "a"), Process("host", "h1", "a")]  # fmt: skip
    assert len({target_file(tmp_path, one) for one in processes}) == len(processes)


def test_a_file_of_another_process_stays(tmp_path):
    file = tmp_path / "host.json"
    with listed_target(file, "127.0.0.1:1", {}), listed_target(file, "127.0.0.1:2", {"name": ""}):
        assert json.loads(file.read_text()) == [{"targets": ["127.0.0.1:2"], "labels": {}}]
        file.write_text("of another process")
    assert file.read_text() == "of another process"
    (tmp_path / "no-folder").touch()
    with pytest.raises(StorageError, match="cannot be written"), listed_target(tmp_path / "no-folder" / "a", "", {}):
        pass


def test_options_without_an_address_are_refused():
    for options in ({"metrics_targets": "a"}, {"anonymous_metrics": True}):
        with pytest.raises(InputError, match="--metrics-address"):
            MetricsOptions(**options)


def test_a_child_gets_a_free_port_of_the_same_host():
    own = MetricsOptions("0.0.0.0:9464", anonymous_metrics=True)
    named = ["--metrics-name", "h0", "--metrics-run", "runs/a"]
    assert own.of_child("h0", "runs/a", Path("/job/metrics")) == [
        *("--metrics-address", "0.0.0.0:0", "--metrics-targets", "/job/metrics", "--anonymous-metrics", *named),
    ]
    given = MetricsOptions("9464", "/targets").of_child("h0", "runs/a", Path("/job/metrics"))
    assert given == ["--metrics-address", "127.0.0.1:0", "--metrics-targets", "/targets", *named]
    assert MetricsOptions().of_child("h0", "runs/a", Path("a")) == []


_REQUEST = b"GET /metrics?name[]=headrace_queue_tasks HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text;q=0.5,text/plain\r\nAccept-Encoding: gzip\r\n\r\n"


def is_read(address: str) -> bool:
    """Whether there is a place for a request, and it is answered."""
    found: Figures = {}
    with suppress(HTTPException, OSError):
        found = scrape(address)
    return bool(found)


@pytest.mark.slow
def test_what_other_processes_send_ends_without_a_trace(capfd: pytest.CaptureFixture[str]) -> None:
    """Damaged requests, connections that are cut off in the middle of an answer, and more silent ones than are read at once."""
    tokens = (b"\xff" * 8, b"\r\n", b"\0", b"%" * 9, b"&" * 2000, b"HTTP/9.9", b"\xed\xa0\x80", b"9" * 400)
    with served() as address:
        place = address.partition(":")[0], int(address.partition(":")[2])
        for seed in range(scaled(1000)):
            draw = Random(seed)
            with suppress(OSError), socket.create_connection(place, PATIENCE_SECS) as stream:
                stream.settimeout(2.0)
                stream.sendall(mutated(_REQUEST, draw, tokens))
                if draw.random() < 0.3:
                    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset
                    continue
                stream.shutdown(socket.SHUT_WR)
                while stream.recv(1 << 16):
                    continue
        before = threading.active_count()
        with ExitStack() as silent:
            for _ in range(60):
                silent.enter_context(socket.create_connection(place, PATIENCE_SECS)).sendall(b"GET /")
            assert threading.active_count() <= before + 17
        wait_until(lambda: is_read(address), "the figures are read again", {})
    assert "Traceback" not in capfd.readouterr().err
