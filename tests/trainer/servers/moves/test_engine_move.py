"""Moves of an engine to other servers while it trains: the bits are those of training in one process."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.in_caller import InCaller
from tests.support.parameter_servers import ThreadServer, sources_of, thread_servers
from tests.trainer.tables.routes.partitioned.plans import mixed_plan
from tests.trainer.tables.routes.servers.random_batches import FEATURES, gradients_of, random_batch, train
from tests.trainer.tables.table_states import assert_same
from trainer.errors import ConfigError, MoveGivenUp, ServerLost
from trainer.servers.client_updates import Greeting
from trainer.servers.loads import table_copier
from trainer.servers.moves import engine_move
from trainer.servers.moves.engine_move import EngineMove, MoveStage
from trainer.servers.moves.table_copy import TableCopy
from trainer.tables import CpuEngine
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.routes.servers.frames import Kind
from trainer.tables.routes.servers.noted_rows import NotedRows
from trainer.tables.routes.servers.server_link import Answer, Request, ServerLink
from trainer.tables.spec import tables_of
from trainer.tables.stores.hashed.limits import TableLimits

SEED = 3


class SlowLink:
    """A link whose updates reach the server when a later request does, or their answers are waited for."""

    def __init__(self, link: ServerLink) -> None:
        self.slow = self._link = link
        self._held = []

    @property
    def waiting(self) -> int:
        return self._link.waiting + len(self._held)

    def send(self, request: Request) -> None:
        self._held.append(request)
        if request.kind is not Kind.UPDATE:
            self._flush()

    def receive(self) -> Answer:
        self._flush()
        return self._link.receive()

    def _flush(self) -> None:
        held, self._held = self._held, []
        for one in held:
            self._link.send(one)

    def close(self) -> None:
        self._link.close()


#: Of every second table, with a place for each of its ids on any number of servers.
HASHED = {one.name: TableLimits(one.vocabulary_size + 8) for one in tables_of(FEATURES)[::2]}


def engine_on(servers: list[ThreadServer], attempt: int = 1, *, planned: bool = False, hashed=None) -> PsEngine:
    def connect(server: ThreadServer, saves: bool) -> SlowLink:
        return SlowLink(server.connect(Greeting(attempt=attempt))(saves))

    connects = [partial(connect, one) for one in servers]
    plan = mixed_plan(FEATURES, len(servers)) if planned else None
    return PsEngine(FEATURES, seed=SEED, servers=connects, plan=plan, threads=1, hashed=hashed)


class Interleaved(InCaller):
    """An executor that works at once in its caller's thread, and the training of two engines of which one is moved."""

    def __init__(self, engine: PsEngine, seed: int) -> None:
        self.engine, self.alone, self.draw = engine, CpuEngine(FEATURES, seed=SEED, threads=1), Random(seed)
        self.steps = 0

    def step(self) -> None:
        self.steps += 1
        assert train(self.engine, [self.steps]) == train(self.alone, [self.steps])

    def move(self, target: list[ThreadServer], attempt: int, *, planned: bool) -> EngineMove:
        hashed = HASHED if self.engine.limits else None
        move = EngineMove(
            self.engine,
            lambda check: engine_on(target, attempt, planned=planned, hashed=hashed),
            self,
            sources_of(self.engine),
        )
        for _ in range(60):
            found = move.advance(may_end=self.draw.random() < 0.7)
            if found is not None:
                self.engine.close()
                self.engine = found
                return move
            self.step()
        raise AssertionError("the move has not ended")


@pytest.fixture
def few_rows(monkeypatch):
    """Noted rows are copied in passes, though there are few in tests."""
    monkeypatch.setattr(engine_move, "_FEW_ROWS", 2)


@pytest.mark.medium
@settings(max_examples=scaled(12))
@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=3), st.integers(1, 3), st.integers(0, 10_000),
       st.sampled_from([1, 40, 1 << 20]), st.booleans())  # fmt: skip
def test_bits_after_moves_are_those_of_one_process(moves, count, seed, most_marks, is_hashed):
    """Steps are trained between the windows of a copy, and between its passes; some servers are used again."""
    with pytest.MonkeyPatch.context() as patch, thread_servers(8) as servers:
        patch.setattr(engine_move, "_FEW_ROWS", 2)
        patch.setattr(table_copier, "_REQUEST_SECS", 0.0)
        patch.setattr(table_copier, "_WINDOW_BYTES", 400)
        patch.setattr(engine_move, "NotedRows", lambda parts, unmarked: NotedRows(parts, most_marks, unmarked))
        training = Interleaved(engine_on(servers[:count], hashed=HASHED if is_hashed else None), seed)
        count_rows, one_at_a_time = TableCopy._count, threading.Lock()

        def count_and_train(self, rows):
            with one_at_a_time:
                if (
                    training.draw.random() < 0.2
                    and training.engine is self._source
                    and training.engine._noted is not None
                ):
                    training.step()
            count_rows(self, rows)

        for _ in range(training.draw.randint(0, 3)):
            training.step()
        free, used = servers[count:], servers[:count]
        for attempt, (number, planned) in enumerate(moves, 2):
            target = free[:number]
            patch.setattr(TableCopy, "_count", count_and_train)
            move = training.move(target, attempt, planned=planned and not is_hashed)
            assert move.figures.stage is MoveStage.DONE
            free, used = [*free[number:], *used], target
            training.step()
            assert_same(training.engine.state(), training.alone.state())
        assert [one.updates for one in training.engine.servers] == [1] * len(used), "of the last move on"
        training.engine.close()


def test_a_move_beside_training_in_another_thread(few_rows):
    with thread_servers(5) as servers, ThreadPoolExecutor(1) as executor:
        engine, alone, steps = engine_on(servers[:2]), CpuEngine(FEATURES, seed=SEED), 0
        move = EngineMove(engine, lambda check: engine_on(servers[2:], 2), executor, sources_of(engine))
        found = None
        while found is None:
            steps += 1
            assert train(engine, [steps]) == train(alone, [steps])
            found = move.advance()
        engine.close()
        more = range(steps + 1, steps + 4)
        assert train(found, more) == train(alone, more)
        assert_same(found.state(), alone.state())
        figures = move.figures
        assert figures.copied_rows > 0
        assert figures.passes >= 1
        assert 0 <= figures.pause_secs <= figures.secs
        found.close()


def test_a_batch_that_was_looked_up_before_the_move_is_updated_after_it():
    with thread_servers(3) as servers:
        training = Interleaved(engine_on(servers[:1]), 1)
        training.step()
        batch = random_batch(FEATURES, 99)
        assert training.engine.lookup(batch).tobytes() == training.alone.lookup(batch).tobytes()
        training.move(servers[1:], 2, planned=False)
        for engine in (training.engine, training.alone):
            engine.apply_gradients(batch, gradients_of(batch, engine.width, 99))
        assert_same(training.engine.state(), training.alone.state())


@pytest.mark.parametrize("is_hashed", [False, True])
@pytest.mark.parametrize("when", ["while it is opened", "while rows are copied", "in the pause"])
def test_a_lost_target_changes_nothing(when, is_hashed, monkeypatch):
    with thread_servers(2) as servers, closing(ThreadServer()) as lost:
        hashed = HASHED if is_hashed else None
        training = Interleaved(engine_on(servers, hashed=hashed), 1)
        training.step()
        name = {"while it is opened": "begin", "while rows are copied": "copy_all", "in the pause": "end"}[when]

        def lose(self):
            lost.close()
            raise ServerLost("a server must answer")

        monkeypatch.setattr(TableCopy, name, lose)
        move = EngineMove(
            training.engine, lambda check: engine_on([lost], 2, hashed=hashed), training, sources_of(training.engine)
        )
        for _ in range({"while it is opened": 0, "while rows are copied": 1, "in the pause": 1}[when]):
            assert move.advance() is None
            training.step()
        with pytest.raises(ServerLost):
            move.advance()
        assert move.figures.stage is MoveStage.GIVEN_UP
        monkeypatch.undo()
        training.step()
        assert_same(training.engine.state(), training.alone.state())
        assert training.move([ThreadServer(), ThreadServer()], 3, planned=not is_hashed).figures.stage is MoveStage.DONE
        training.step()
        assert_same(training.engine.state(), training.alone.state())


def test_a_move_that_is_given_up_ends_soon():
    with thread_servers(2) as servers, ThreadPoolExecutor(1) as executor:
        training = Interleaved(engine_on(servers[:1]), 1)
        training.step()
        move = EngineMove(
            training.engine, lambda check: engine_on(servers[1:], 2), executor, sources_of(training.engine)
        )
        move.give_up()
        with pytest.raises(MoveGivenUp):
            move.check()
        training.step()
        assert_same(training.engine.state(), training.alone.state())


def test_other_tables_are_refused():
    with thread_servers(2) as servers:
        one = engine_on(servers[:1])
        other = PsEngine(FEATURES[:3], seed=SEED, servers=[servers[1].connect()], threads=1)
        with pytest.raises(ConfigError, match="same tables"):
            TableCopy(one, other, sources_of(one))


def noted_rows(noted: NotedRows, t: int, most_rows: int) -> np.ndarray:
    windows = list(noted.windows(t, most_rows))
    assert all(0 < len(one) <= most_rows for one in windows)
    return np.concatenate([np.zeros(0, np.int64), *windows])


@settings(max_examples=scaled(20))
@given(st.integers(1, 4), st.booleans(), st.integers(1, 2000), st.integers(1, 100), st.integers(0, 10_000))
def test_noted_rows_are_those_of_updates_or_their_blocks(servers, planned, most_marks, most_rows, seed):
    with thread_servers(servers) as made:
        engine = engine_on(made, planned=planned)
        alone = CpuEngine(FEATURES, seed=SEED, threads=1)
        noted = NotedRows(engine.parts, most_marks)
        engine.note_updates(noted)
        train(engine, [seed, seed + 1])
        train(alone, [seed, seed + 1])
        engine.note_updates(None)
        train(engine, [seed + 2])
        state = alone.state()
        assert sum(-(-one.vocabulary_size // noted.block_rows) for one in engine.parts.tables) <= max(
            most_marks, len(engine.parts.tables)
        )
        total = 0
        for t, table in enumerate(engine.parts.tables):
            rows = noted_rows(noted, t, most_rows)
            blocks = np.unique(state[table.name].rows // noted.block_rows)
            expected = (blocks[:, None] * noted.block_rows + np.arange(noted.block_rows)).reshape(-1)
            assert rows.tolist() == expected[expected < table.vocabulary_size].tolist()
            total += len(blocks) * noted.block_rows
        assert noted.count == total
        engine.close()
