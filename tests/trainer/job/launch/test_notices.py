"""Sources of preemption notices, with real files and servers."""

from __future__ import annotations

import http.client
import random
import socket
import threading
import time
from contextlib import contextmanager

import pytest

from tests.support.metadata_server import MetadataServer
from tests.support.processes import PATIENCE_SECS
from trainer.errors import ConfigError
from trainer.job.launch.http_notice import HttpNotice
from trainer.job.launch.notices import FileNotice, MetadataNotice, watch_notices
from trainer.wire.flight.addresses import Address
from transforms.errors import InputError

LOOPBACK = Address("127.0.0.1", 0)


class Taken:
    """The notices that arrived."""

    def __init__(self) -> None:
        self.secs: list[float] = []
        self._came = threading.Event()

    def __call__(self, secs: float) -> None:
        self.secs.append(secs)
        self._came.set()

    def wait(self) -> list[float]:
        assert self._came.wait(PATIENCE_SECS)
        return self.secs


@pytest.mark.parametrize(
    ("content", "secs"),
    [
        ("", 12.0),
        ("45", 45.0),
        (" 7.5\n", 7.5),
        ("soon", 12.0),
        ("nan", 12.0),
        ("-1", 12.0),
        ("9" * 99, 12.0),
    ],
)
def test_a_file_that_appears_is_a_notice(tmp_path, content, secs):
    taken = Taken()
    with watch_notices([FileNotice(tmp_path / "notice", grace_secs=12.0, look_secs=0.01)], taken):
        time.sleep(0.05)
        assert taken.secs == []
        (tmp_path / "new").write_text(content)
        (tmp_path / "new").rename(tmp_path / "notice")
        assert taken.wait() == [secs]


def request(address: Address, token: str | None, body: bytes = b"", path: str = "/notice", method: str = "POST", **headers: str) -> int:  # fmt: skip
    connection = http.client.HTTPConnection(address.host, address.port, timeout=PATIENCE_SECS)
    sent = {} if token is None else {"Authorization": f"Bearer {token}"}
    connection.request(method, path, body=body, headers={**sent, **headers})
    status = connection.getresponse().status
    connection.close()
    return status


@contextmanager
def http_source(taken: Taken):
    source = HttpNotice(LOOPBACK, token="secret", grace_secs=12.0)
    with watch_notices([source], taken):
        yield source.address


def test_a_request_with_the_token_is_a_notice():
    taken = Taken()
    with http_source(taken) as address:
        assert request(address, "secret") == 204
        assert request(address, "secret", b'{"grace_secs": 5}') == 204
        assert taken.secs == [12.0, 5.0]
        with pytest.raises(ConfigError, match="must be free"):
            HttpNotice(address, token="secret")
    again = HttpNotice(address, token="secret")
    assert again.address == address, "the port is free after the end"
    with watch_notices([again], taken):
        pass


def test_other_requests_are_refused():
    taken, chance = Taken(), random.Random(3)
    with http_source(taken) as address:
        assert request(address, None) == 401
        assert request(address, "secrets") == 401
        assert request(address, "\xff") == 401
        assert request(address, "secret", path="/") == 404
        assert request(address, "secret", method="GET") == 501
        assert request(address, "secret", b"x" * 5000) == 413
        assert request(address, "secret", **{"Content-Length": "99999999999"}) == 413
        assert request(address, "secret", **{"Content-Length": "-1"}) == 400
        for body in (b"{", b"[]", b'{"grace_secs": "5"}', b'{"grace_secs": -5}', b'{"grace_secs": NaN}', b'{"grace_secs": true}',
                     b'{"secs": 5}', b"[" * 4000, b"\xff"):  # fmt: skip
            assert request(address, "secret", body) == 400, body
        for _ in range(20):
            with socket.create_connection((address.host, address.port), timeout=PATIENCE_SECS) as raw:
                raw.sendall(bytes(chance.randrange(256) for _ in range(200)) + b"\r\n\r\n")
        assert taken.secs == []
        assert request(address, "secret") == 204
    with pytest.raises(InputError, match="token"):
        HttpNotice(LOOPBACK, token="")


def until(condition) -> None:
    limit = time.monotonic() + PATIENCE_SECS
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_the_metadata_of_a_cloud_is_a_notice(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    server, taken = MetadataServer(), Taken()
    with watch_notices([MetadataNotice(server.url, grace_secs=12.0, least_secs=0.01)], taken):
        until(lambda: len(server.asked) == 2)
        assert taken.secs == []
        assert server.asked[0] == "/computeMetadata/v1/instance/preempted"
        assert "wait_for_change=true" in server.asked[1]
        server.preempted.set()
        assert taken.wait() == [12.0]
    server.close()


def test_a_metadata_server_that_is_away_is_asked_again():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    taken = Taken()
    with watch_notices([MetadataNotice(f"http://127.0.0.1:{port}", least_secs=0.01)], taken):
        time.sleep(0.1)
        server = MetadataServer(port)
        server.preempted.set()
        assert taken.wait() == [30.0]
    server.close()


def test_another_server_at_the_address_gives_no_notice():
    server, taken = MetadataServer(flavor="Other"), Taken()
    server.preempted.set()
    with watch_notices([MetadataNotice(server.url, least_secs=0.01)], taken):
        until(lambda: len(server.asked) >= 2)
    assert taken.secs == []
    server.close()
    for wrong in ("metadata", "ftp://host", "http://", "http://host?x=1", "http://host:99999999", "http://[x"):
        with pytest.raises(InputError, match="named by its URL"):
            MetadataNotice(wrong)


def test_a_silent_metadata_server_delays_nothing():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        with watch_notices([MetadataNotice(f"http://127.0.0.1:{silent.getsockname()[1]}")], Taken()):
            time.sleep(0.05)
        assert time.monotonic() - began < 20
