"""Connections with TLS: the same bits; other authorities, hosts and plain clients are refused."""

from __future__ import annotations

import socket
from contextlib import closing, contextmanager

import pytest

from tests.support.certificates import make_certificates
from tests.support.cutting_proxy import cutting
from tests.support.examples import scaled
from tests.support.parameter_servers import ThreadServer, thread_servers
from tests.support.processes import PATIENCE_SECS
from tests.trainer.servers.test_service import answer, client_threads, connected, connected_with, greeting, wait_until
from tests.trainer.servers.test_tcp_link import random_cuts
from tests.trainer.tables.routes.servers.random_batches import FEATURES, train
from tests.trainer.tables.table_states import assert_same
from trainer.errors import ConfigError, ServerLost
from trainer.servers.client_updates import Greeting
from trainer.servers.loads.copy_orders import CopySources
from trainer.servers.loads.named_links import NamedLinks
from trainer.servers.moves.table_copy import TableCopy
from trainer.servers.server_status import read_status
from trainer.servers.tcp_link import LinkOptions, connect_to
from trainer.servers.tls import client_tls, server_tls
from trainer.tables import CpuEngine
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.routes.servers.named_servers import NamedServers
from trainer.wire.flight.error_documents import RemoteError

SEED = 3
SHORT_SECS = 0.3


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("tls") / "one")


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("tls") / "other", "127.0.0.9")


@contextmanager
def encrypted(certificates, **settings):
    server = ThreadServer(tls=server_tls(str(certificates.certificate), str(certificates.key)), **settings)
    try:
        yield server
    finally:
        server.close()


def test_bits_are_the_same_with_tls(certificates):
    tls = client_tls(str(certificates.authority))
    with encrypted(certificates, token="secret") as server:
        engine = PsEngine(FEATURES, seed=SEED, servers=[server.connect(Greeting("secret"), tls=tls)])
        alone = CpuEngine(FEATURES, seed=SEED)
        assert train(engine, range(5)) == train(alone, range(5))
        assert_same(engine.state(), alone.state())
        engine.load_state(alone.state())
        assert train(engine, range(5)) == train(alone, range(5))
        assert read_status(server.address, token="secret", tls=tls).updates == 10
        with pytest.raises(RemoteError, match="token"):
            server.connect(Greeting("wrong"), tls=tls)(False)
        engine.close()


def test_encrypted_connections_that_are_cut_off_change_no_bit(certificates):
    tls = client_tls(str(certificates.authority))
    with encrypted(certificates) as server, cutting(server.address, random_cuts(5, 40_000)) as proxy:
        engine = PsEngine(FEATURES, seed=SEED, servers=[connect_to(proxy.address, LinkOptions(tls=tls))])
        alone = CpuEngine(FEATURES, seed=SEED)
        steps = 0
        while proxy.cuts < scaled(80):
            assert train(engine, [steps]) == train(alone, [steps])
            steps += 1
        engine.finish()
        assert server.rows.status().applied == (steps,)
        assert server.rows.status().updates == steps
        engine.close()


def test_a_server_of_another_authority_is_refused_at_once(certificates, others):
    with encrypted(certificates) as server, pytest.raises(ConfigError, match="signed for its host"):
        server.connect(tls=client_tls(str(others.authority)))(False)


def test_a_server_of_another_host_is_refused_at_once(others):
    with encrypted(others) as server, pytest.raises(ConfigError, match="signed for its host"):
        server.connect(tls=client_tls(str(others.authority)))(False)


def test_a_plain_client_of_a_server_with_tls_has_one_error(certificates):
    with encrypted(certificates) as server:
        with pytest.raises(ServerLost, match="must answer"):
            server.connect(patience_secs=SHORT_SECS)(False)
        with connected(server, greeting()) as stream:
            assert answer_or_none(stream) is None
        read_status(server.address, tls=client_tls(str(certificates.authority)))


def answer_or_none(stream: socket.socket):
    """No frame: TLS may answer with an alert of its own."""
    try:
        return answer(stream)
    except Exception:
        return None


def test_a_client_with_tls_of_a_plain_server_has_one_error(certificates):
    tls = client_tls(str(certificates.authority))
    with thread_servers(1) as (server,), pytest.raises(ServerLost, match="must answer"):
        server.connect(patience_secs=SHORT_SECS, tls=tls)(False)


def test_a_handshake_that_does_not_come_ends_the_connection(certificates, monkeypatch):
    monkeypatch.setattr("trainer.wire.framed_service._GREETING_SECS", 0.2)
    with encrypted(certificates) as server, connected_with(server, b"\x16\x03\x01") as stream:
        assert answer_or_none(stream) is None
        wait_until(lambda: client_threads() == 0)
        assert server.service._service._connections.open_count == 0


def test_encrypted_connections_end_with_the_service(certificates):
    tls = client_tls(str(certificates.authority))
    with encrypted(certificates) as server:
        links = [server.connect(Greeting("", k, 3), tls=tls)(False) for k in range(3)]
        wait_until(lambda: client_threads() == 3)
        server.service.close()
        wait_until(lambda: client_threads() == 0)
        for one in links:
            one.close()


def test_files_that_are_no_certificates_are_one_error(tmp_path, certificates):
    (tmp_path / "bad.pem").write_text("no certificate")
    for certificate, key in (("missing.pem", ""), (str(tmp_path / "bad.pem"), ""), (str(certificates.certificate), str(tmp_path / "bad.pem"))):  # fmt: skip
        with pytest.raises(ConfigError, match="must be PEM"):
            server_tls(certificate, key)
    for authority in ("missing.pem", str(tmp_path / "bad.pem")):
        with pytest.raises(ConfigError, match="must be PEM"):
            client_tls(authority)
    assert server_tls("", "") is None
    assert client_tls("") is None


def test_a_server_takes_rows_of_servers_with_tls_by_its_authority(certificates):
    """Without the authority it says which option names it."""
    tls = client_tls(str(certificates.authority))
    links = NamedLinks(tls, patience_secs=PATIENCE_SECS)
    with encrypted(certificates, token="secret") as server, closing(ThreadServer(links=links)) as able, closing(ThreadServer()) as unable:  # fmt: skip
        source = PsEngine(FEATURES, seed=SEED, servers=[server.connect(Greeting("secret", attempt=1), tls=tls)])
        train(source, range(5))
        expected = source.state()
        sources = CopySources(NamedServers((server.address,), "secret", True), 1)
        for target, is_able in ((able, True), (unable, False)):
            engine = PsEngine(FEATURES, seed=SEED, servers=[target.connect()])
            copy = TableCopy(source, engine, sources)
            copy.begin()
            if is_able:
                copy.copy_all()
                copy.end()
                assert_same(engine.state(), expected)
            else:
                with pytest.raises(RemoteError, match="authority") as caught:
                    copy.copy_all()
                assert "headrace ps serve --server-ca" in caught.value.next_step
            copy.close()
            engine.close()
        source.close()
