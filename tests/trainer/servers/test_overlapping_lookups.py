"""Lookups that are on their way to servers at once: what they see, and that no update is lost or made twice."""

from __future__ import annotations

import time
from collections import deque
from random import Random

import numpy as np
import pytest

from tests.support.certificates import make_certificates
from tests.support.cutting_proxy import cutting
from tests.support.examples import scaled
from tests.support.parameter_servers import ThreadServer, thread_servers
from tests.support.processes import PATIENCE_SECS
from tests.trainer.tables.routes.servers.random_batches import FEATURES, gradients_of, random_batch
from tests.trainer.tables.table_states import assert_same
from trainer.servers.client_updates import Greeting
from trainer.servers.tcp_link import LinkOptions, connect_to
from trainer.servers.tls import client_tls, server_tls
from trainer.tables import SGD, CpuEngine, FeatureSpec, TableSpec
from trainer.tables.routes.servers.engine import PsEngine

SEED = 3
#: Rows of 16 KiB: answers and updates of a batch are larger than the memory of any socket.
WIDE = (FeatureSpec("wide", TableSpec("wide", 4096, 4096, SGD(0.1), "sum")),)


def overlapped(engine, steps: int, most: int, features=FEATURES, **shape) -> list[bytes]:
    """Train with up to ``most`` lookups on their way; returns the activations in order."""
    seen, begun = [], deque()

    def end() -> None:
        step, batch, looked_up = begun.popleft()
        seen.append(looked_up().tobytes())
        engine.apply_gradients(batch, gradients_of(batch, engine.width, step))

    for step in range(steps):
        batch = random_batch(features, step, **shape)
        begun.append((step, batch, engine.begin_lookup(batch)))
        while len(begun) > most:
            end()
    while begun:
        end()
    return seen


def late(engine, steps: int, staleness: int, features=FEATURES, **shape) -> list[bytes]:
    """The same on an engine that answers at once."""
    seen, due = [], deque()
    for step in range(steps):
        batch = random_batch(features, step, **shape)
        seen.append(engine.lookup(batch).tobytes())
        due.append((step, batch))
        if len(due) > staleness:
            number, one = due.popleft()
            engine.apply_gradients(one, gradients_of(one, engine.width, number))
    for number, one in due:
        engine.apply_gradients(one, gradients_of(one, engine.width, number))
    return seen


@pytest.mark.parametrize("most", [1, 3, 7])
@pytest.mark.parametrize("servers", [1, 3])
def test_a_lookup_sees_the_updates_that_were_sent_before_it(servers, most):
    with thread_servers(servers) as made:
        engine = PsEngine(FEATURES, seed=SEED, servers=[one.connect() for one in made], held=most + 1, overlaps=True)
        alone = CpuEngine(FEATURES, seed=SEED)
        assert overlapped(engine, 20, most) == late(alone, 20, most)
        engine.finish()
        assert_same(engine.state(), alone.state())
        engine.close()


@pytest.mark.medium
@pytest.mark.parametrize("has_tls", [False, True])
def test_answers_are_taken_while_a_large_update_is_sent(has_tls, tmp_path):
    """A server that cannot send its answer reads nothing: the client must take answers while it sends."""
    tls = None
    if has_tls:
        made = make_certificates(tmp_path)
        tls = client_tls(str(made.authority))
    server = ThreadServer(tls=server_tls(str(made.certificate), str(made.key)) if has_tls else None)
    try:
        options = LinkOptions(Greeting(), patience_secs=PATIENCE_SECS, tls=tls)
        engine = PsEngine(WIDE, seed=SEED, servers=[connect_to(server.address, options)], held=5, overlaps=True)
        alone = CpuEngine(WIDE, seed=SEED)
        shape = {"events": 600, "longest": 1, "weighted": False}
        assert overlapped(engine, 8, 4, WIDE, **shape) == late(alone, 8, 4, WIDE, **shape)
        engine.finish()
        assert_same(engine.state(), alone.state())
        assert engine.servers[0].link.reconnections == 0
        engine.close()
    finally:
        server.close()


@pytest.mark.medium
def test_lookups_over_connections_that_are_cut_off_change_no_row():
    """The gradients do not depend on the activations here, which may have seen later updates; each update is made once."""
    cuts, random = scaled(200), Random(5)
    with thread_servers(1) as (server,), cutting(server.address, lambda: random.randint(200, 60_000)) as proxy:
        options = LinkOptions(Greeting(), patience_secs=PATIENCE_SECS)
        engine = PsEngine(FEATURES, seed=SEED, servers=[connect_to(proxy.address, options)], held=6, overlaps=True)
        alone, steps = CpuEngine(FEATURES, seed=SEED), 0
        while proxy.cuts < cuts:
            overlapped(engine, 10, 5)
            late(alone, 10, 5)
            steps += 10
        engine.finish()
        assert server.rows.status().updates == steps
        direct = PsEngine(FEATURES, seed=SEED, servers=[server.connect()])
        assert_same(direct.state(), alone.state())
        direct.close()
        engine.close()


def test_lookups_that_do_not_overlap_have_ended_before_an_update_is_sent():
    with thread_servers(1) as (server,):
        engine = PsEngine(FEATURES, seed=SEED, servers=[server.connect()])
        end = engine.begin_lookup(random_batch(FEATURES, 0))
        assert engine.servers[0].link.waiting == 0
        end()
        engine.close()


def test_lookups_hide_the_delay_of_answers():
    """Counted, not timed: requests are with the server before the answer to the first one has come."""
    with thread_servers(1) as (server,):
        engine = PsEngine(FEATURES, seed=SEED, servers=[server.connect()], held=6, overlaps=True)
        ends = [engine.begin_lookup(random_batch(FEATURES, step)) for step in range(5)]
        assert engine.servers[0].link.waiting == 5
        until = time.monotonic() + PATIENCE_SECS
        while server.rows.status().fetches < 5 and time.monotonic() < until:
            time.sleep(0.01)
        assert server.rows.status().fetches == 5
        found = [end() for end in ends]
        assert engine.servers[0].link.waiting == 0
        assert all(np.isfinite(one).all() for one in found)
        engine.close()


def test_finished_lookups_need_no_server():
    """As after a move to other servers."""
    with thread_servers(2) as made:
        engine = PsEngine(FEATURES, seed=SEED, servers=[one.connect() for one in made], held=4, overlaps=True)
        batches = [random_batch(FEATURES, step) for step in range(3)]
        ends = [engine.begin_lookup(batch) for batch in batches]
        engine.finish()
        engine.close()
        alone = CpuEngine(FEATURES, seed=SEED)
        assert [end().tobytes() for end in ends] == [alone.lookup(batch).tobytes() for batch in batches]
