"""The engine on servers with encoded messages: unique rows change no bit, and rounded values stay within what their blocks say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.parameter_servers import thread_servers
from tests.support.server_process import ServerProcess
from tests.trainer.tables.routes.partitioned.plans import mixed_plan
from tests.trainer.tables.routes.servers.random_batches import FEATURES, gradients_of, random_batch, train
from tests.trainer.tables.table_states import assert_same
from trainer.errors import NonFiniteLoss
from trainer.servers.tcp_link import LinkOptions, connect_to
from trainer.tables import SGD, CpuEngine, FeatureSpec, IdBatch, TableSpec
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.wire import fp14_blocks, fp16_blocks, row_numbers
from trainer.tables.wire.encoded_values import FLAG_OF, encoded_bytes, floats_of_pieces
from trainer.tables.wire.settings import VALUES, WireSettings
from trainer.wire.frames import HEADER_BYTES
from transforms.errors import HeadraceError

SEED = 3
UNIQUE = WireSettings("unique")
#: Of each encoding, its relative error, and that of small values to the norm of their block.
ERRORS = {
    "fp16": (fp16_blocks.RELATIVE_ERROR, fp16_blocks.NORM_ERROR),
    "fp14": (fp14_blocks.RELATIVE_ERROR, fp14_blocks.NORM_ERROR),
}


def engine_on(servers, features=FEATURES, **options) -> PsEngine:
    return PsEngine(features, seed=SEED, servers=[one.connect() for one in servers], threads=2, **options)


@settings(max_examples=scaled(12))
@given(st.integers(1, 3), st.integers(0, 1000), st.booleans())
def test_unique_rows_change_no_bit(count, seed, is_planned):
    """With rows in slices and copies, too."""
    features = FEATURES[:-1] if is_planned else FEATURES
    plan = mixed_plan(features, count) if is_planned else None
    with thread_servers(count) as made:
        engine, alone = engine_on(made, features, plan=plan, wire=UNIQUE), CpuEngine(features, seed=SEED)
        seeds = range(seed, seed + 5)
        assert train(engine, seeds, features) == train(alone, seeds, features)
        assert_same(engine.state(), alone.state())
        assert engine.copied_bytes == 0 or is_planned
        engine.close()


@pytest.mark.parametrize("values", ERRORS)
@pytest.mark.parametrize("is_planned", [False, True])
def test_rounded_values_are_near_exact_ones(values, is_planned):
    """Rows of one fetch are within the error of their blocks; states after some updates are near those of exact messages."""
    features = FEATURES[:-1]
    plan = mixed_plan(features, 3) if is_planned else None
    with thread_servers(3) as made, thread_servers(3) as others:
        engine = engine_on(made, features, plan=plan, wire=WireSettings("unique", values))
        exact = engine_on(others, features, plan=plan)
        batch = random_batch(features, 1, weighted=False)
        found, expected = engine.lookup(batch), exact.lookup(batch)
        assert found.tobytes() != expected.tobytes()
        relative, _ = ERRORS[values]
        np.testing.assert_allclose(found, expected, rtol=0, atol=4 * relative * np.abs(expected).max())
        for seed in range(4):
            batch = random_batch(features, seed)
            for one in (engine, exact):
                one.lookup(batch)
                one.apply_gradients(batch, gradients_of(batch, one.width, seed))
        rounded, state = engine.state(), exact.state()
        for name, table in state.items():
            assert rounded[name].rows.tolist() == table.rows.tolist()
            np.testing.assert_allclose(rounded[name].weights, table.weights, rtol=0, atol=8 * relative * max(1.0, np.abs(table.weights).max()))  # fmt: skip
        assert engine.copied_bytes == 0 or is_planned
        engine.close()
        exact.close()


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("ids", ["plain", "unique"])
def test_bytes_are_those_that_encodings_promise(ids, values):
    wire, padded = WireSettings(ids, values), lambda size: size + -size % 8
    with thread_servers(2) as made:
        engine = engine_on(made, wire=wire)
        batch = random_batch(FEATURES, 1, events=60)
        before = [(one.link.sent_bytes, one.link.received_bytes) for one in engine.servers]
        engine.lookup(batch)
        engine.apply_gradients(batch, gradients_of(batch, engine.width, 1))
        engine.finish()
        reads = engine._batches[-1][1].rows.requests.reads
        for server, remote in enumerate(engine.servers):
            rows, counts = reads.rows[reads.of_owner(server)], reads.counts[server]
            room = np.empty(row_numbers.most_bytes(len(rows), len(counts)), np.uint8)
            row_bytes = 4 * len(rows) if ids == "plain" else 8 + padded(row_numbers.encode(rows, counts, room))
            floats = floats_of_pieces(counts, remote.dims)
            value_bytes = encoded_bytes(floats, FLAG_OF[values]) if values != "float32" else 4 * sum(floats)
            body = 8 * len(counts) + padded(row_bytes)
            sent = 2 * HEADER_BYTES + 2 * body + padded(4 * len(counts)) + value_bytes
            assert remote.link.sent_bytes - before[server][0] == sent
            assert remote.link.received_bytes - before[server][1] == 2 * HEADER_BYTES + value_bytes
            if ids == "unique":
                assert row_bytes < 4 * len(rows)
        engine.close()


@pytest.mark.parametrize("values", ERRORS)
def test_states_weights_and_snapshots_are_never_rounded(values):
    with thread_servers(2) as made:
        engine, alone = engine_on(made, wire=WireSettings("unique", values)), CpuEngine(FEATURES, seed=SEED)
        train(alone, range(3))
        engine.load_state(alone.state())
        assert_same(engine.state(), alone.state())
        rows = np.arange(50)[::-1]
        assert engine.weights_of("one", rows).tobytes() == alone.weights_of("one", rows).tobytes()
        snapshot, expected = engine.begin_snapshot(most_bytes=1 << 20), alone.state()
        for t, table in enumerate(engine.tables):
            found = list(snapshot.table(t))
            assert b"".join(one.weights.tobytes() for one in found) == expected[table.name].weights.tobytes()
        engine.close()


def test_rows_beyond_int32_are_unique():
    rows = 1 << 33
    features = [FeatureSpec("a", TableSpec("t", rows, 1, SGD(0.5), "sum"))]
    batch = IdBatch(np.array([0, rows - 1, 1 << 31, 5, rows - 1], np.int64), np.arange(6, dtype=np.int64)[None])
    with thread_servers(2) as made, thread_servers(2) as others:
        engine, plain = engine_on(made, features, wire=UNIQUE), engine_on(others, features)
        for _ in range(2):
            assert engine.lookup(batch).tobytes() == plain.lookup(batch).tobytes()
            for one in (engine, plain):
                one.apply_gradients(batch, np.ones((5, 1), np.float32))
        engine.close()
        plain.close()


@pytest.mark.parametrize("values", ERRORS)
def test_sums_that_overflow_are_refused_by_the_client_and_infinite_rows_by_the_server(values):
    features = [FeatureSpec("a", TableSpec("t", 4, 2, SGD(1.0), "sum"))]
    batch = IdBatch(np.zeros(2, np.int64), np.arange(3, dtype=np.int64)[None])
    with thread_servers(1) as made:
        engine = engine_on(made, features, wire=WireSettings("plain", values))
        largest = np.full((2, 2), np.finfo(np.float32).max, np.float32)
        engine.lookup(batch)
        with pytest.raises(NonFiniteLoss, match="summed gradient"):
            engine.apply_gradients(batch, largest)
        assert engine.servers[0].updates == 0
        largest[1] = 0.0
        for _ in range(2):
            engine.apply_gradients(batch, largest)
        with pytest.raises(HeadraceError, match="a weight"):
            engine.lookup(batch)
        engine.close()


@pytest.mark.slow
def test_a_killed_server_changes_no_bit_of_encoded_training(tmp_path):
    """Encoded fetches and updates are sent again as they were."""
    wire = WireSettings("unique", "fp14")
    with thread_servers(1) as made:
        alone = engine_on(made, wire=wire)
        expected, state = train(alone, range(6)), alone.state()
        alone.close()
    server = ServerProcess(tmp_path)
    try:
        server.start()
        connect = connect_to(server.address, LinkOptions())
        engine, seen = PsEngine(FEATURES, seed=SEED, servers=[connect], threads=2, wire=wire), []
        for seed in range(6):
            seen += train(engine, [seed])
            server.kill()  # with the update on its way
            server.start()
        assert seen == expected
        assert_same(engine.state(), state)
        assert engine.servers[0].link.reconnections > 0
        engine.close()
    finally:
        server.close()
