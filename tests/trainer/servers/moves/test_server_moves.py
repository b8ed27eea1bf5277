"""The servers of a training, which requests in files of its run replace by others."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace

import pytest

from tests.support.embedding_workers import ThreadWorker
from tests.support.parameter_servers import ThreadServer, thread_servers
from tests.support.processes import PATIENCE_SECS, free_port
from tests.trainer.tables.routes.partitioned.plans import mixed_plan
from tests.trainer.tables.routes.servers.random_batches import FEATURES, gradients_of, random_batch, train
from tests.trainer.tables.table_states import assert_same
from trainer.errors import ServerLost
from trainer.run.progress.lock import is_locked
from trainer.servers.moves import move_checks, server_moves
from trainer.servers.moves.engine_move import MoveStage
from trainer.servers.moves.move_documents import MoveFiles, MoveReport, MoveRequest, new_id
from trainer.servers.moves.server_moves import ServerMoves
from trainer.servers.run_servers import RunServers
from trainer.tables import CpuEngine
from trainer.tables.routes.servers.served_engine import ServedOptions
from trainer.tables.spec import tables_of
from trainer.tables.stores.hashed.limits import TableLimits
from trainer.wire.flight.addresses import Address
from transforms.errors import StorageError

SEED = 3
#: Of every second table, with a place for each of its ids on any number of servers.
HASHED = {one.name: TableLimits(one.vocabulary_size + 8) for one in tables_of(FEATURES)[::2]}


class Started:
    """Servers that a training starts, in threads."""

    def __init__(self, count: int) -> None:
        self.token = "of-servers-that-were-started"
        self.servers = [ThreadServer(token=self.token) for _ in range(count)]
        self.addresses = tuple(one.address for one in self.servers)
        self.ends = 0

    def check(self) -> None:
        """Threads of a test do not end by an error."""

    def end(self) -> None:
        self.ends += 1
        for one in self.servers:
            one.close()


class Training:
    """Steps on the servers of a training, beside those of an engine in this process."""

    def __init__(self, folder, servers: RunServers, started=None, start=None, hashed=None) -> None:
        self.options = ServedOptions(hashed or {})
        self.files, self.told, self.made = MoveFiles(folder / "servers"), [], []
        self.moves = ServerMoves(servers, self.files, start=start or self.start, started=started, tell=self.told.append)
        self.alone, self.steps = CpuEngine(FEATURES, seed=SEED, threads=1), 0
        self.begin(1)

    def start(self, count: int) -> Started:
        self.made.append(Started(count))
        return self.made[-1]

    def begin(self, attempt: int) -> None:
        self.engine = self.moves.engine(attempt, FEATURES, SEED, 2, self.options)
        self.engine.load_state(self.alone.state())

    def step(self) -> None:
        self.steps += 1
        self.engine = self.moves.follow(self.engine, True)
        assert train(self.engine, [self.steps]) == train(self.alone, [self.steps])

    def step_until_the_end(self) -> None:
        while True:
            self.step()

    def ask(self, servers, plan=None, training: str = "") -> MoveRequest:
        request = MoveRequest(new_id(), training or self.files.read_state().training, servers, plan)
        self.files.ask(request)
        return request

    def report(self, request: MoveRequest) -> MoveReport:
        """Of the move of a request, which is over."""
        until = time.monotonic() + PATIENCE_SECS
        while time.monotonic() < until:
            self.step()
            found = self.files.read_state().move
            if found is not None and found.id == request.id and found.is_over:
                assert_same(self.engine.state(), self.alone.state())
                return found
        raise AssertionError("the move has no end")


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(server_moves, "_LOOK_SECS", 0.0)
    monkeypatch.setattr(move_checks, "FIRST_ANSWER_SECS", PATIENCE_SECS)


def of(servers, token: str = "") -> RunServers:
    return RunServers(tuple(one.address for one in servers), token, run=1, patience_secs=PATIENCE_SECS)


def addresses(servers) -> tuple[Address, ...]:
    return tuple(one.address for one in servers)


def test_tables_are_moved_to_more_and_fewer_servers_and_back(tmp_path):
    with thread_servers(5) as servers:
        training = Training(tmp_path, of(servers[:2]))
        with training.moves:
            assert is_locked(training.files.folder)
            for target in (servers[2:], servers[:1], servers[1:3], servers[:1]):
                report = training.report(training.ask(addresses(target)))
                assert (report.figures.stage, report.problem) == (MoveStage.DONE, {})
                assert training.files.read_state().servers == addresses(target)
                assert training.moves.servers.addresses == addresses(target)
            training.begin(2)
            training.step()
            assert_same(training.engine.state(), training.alone.state())
        assert not is_locked(training.files.folder)
    assert len(training.told) == 4
    assert all("rows copied while training went on" in one for one in training.told)


def test_servers_that_training_starts_end_once_they_are_not_used(tmp_path):
    first = Started(2)
    with closing(ThreadServer(token=first.token)) as other:
        servers = [other]
        training = Training(tmp_path, of(first.servers, first.token), first)
        with training.moves:
            assert training.report(training.ask(3)).figures.stage is MoveStage.DONE
            assert training.files.read_state().are_local
            assert training.report(training.ask(addresses(servers))).figures.stage is MoveStage.DONE
            assert not training.files.read_state().are_local
            assert training.report(training.ask(1)).figures.stage is MoveStage.DONE
            second, third = training.made
            assert third.ends == 0
        assert [one.ends for one in (first, second, third)] == [1, 1, 1]


def test_a_plan_goes_with_a_request(tmp_path):
    with thread_servers(5) as servers:
        planned = RunServers(addresses(servers[:2]), plan=mixed_plan(FEATURES, 2), run=1)
        training = Training(tmp_path, planned)
        with training.moves:
            report = training.report(training.ask(addresses(servers[2:])))
            assert "needs a plan for the new servers" in report.problem["what"]
            assert "ps:3" in report.problem["next_step"]
            report = training.report(training.ask(addresses(servers[2:]), mixed_plan(FEATURES, 3)))
            assert report.figures.stage is MoveStage.DONE
            report = training.report(training.ask(addresses(servers[:1]), mixed_plan(FEATURES[:1], 1)))
            assert report.figures.stage is MoveStage.DONE, "tables without a plan are spread"


def failing(count: int) -> Started:
    raise StorageError("a parameter server did not start", value="status 1")


@pytest.mark.parametrize(
    ("case", "problem"),
    [
        ("one that is used", "other servers than the current ones"),
        ("none", "a server must answer"),
        ("another token", "the token must be that of the servers"),
        ("no process", "a parameter server did not start"),
        ("another training", "for the training that runs"),
    ],
)
def test_a_request_that_cannot_be_met_changes_nothing(tmp_path, monkeypatch, case, problem):
    if case == "none":
        monkeypatch.setattr(move_checks, "FIRST_ANSWER_SECS", 0.1)
    with thread_servers(2) as servers, closing(ThreadServer(token="secret")) as other:
        training = Training(tmp_path, of(servers), start=failing)
        asked = {
            "one that is used": (servers[1].address, Address("127.0.0.1", 1)),
            "none": (Address("127.0.0.1", free_port()),),
            "another token": (other.address,),
            "no process": 2,
            "another training": 2,
        }[case]
        with training.moves:
            training.step()
            report = training.report(training.ask(asked, training=new_id() if case == "another training" else ""))
            assert report.figures.stage is MoveStage.GIVEN_UP
            assert problem in report.problem["what"]
            assert training.moves.servers.addresses == addresses(servers)
            assert any("training goes on with" in one for one in training.told)
            monkeypatch.setattr(move_checks, "FIRST_ANSWER_SECS", PATIENCE_SECS)
            with thread_servers(1) as good:
                assert training.report(training.ask(addresses(good))).figures.stage is MoveStage.DONE


def test_a_damaged_request_does_not_end_training(tmp_path):
    with thread_servers(2) as servers:
        training = Training(tmp_path, of(servers[:1]))
        with training.moves:
            training.files.request.write_bytes(b"{}")
            training.step()
            assert "a request to move tables was not met" in training.told[0]
            assert training.report(training.ask(addresses(servers[1:]))).figures.stage is MoveStage.DONE


class Held(Started):
    """Servers that start when the test says so."""

    def __init__(self, count: int) -> None:
        self.may_start.wait(PATIENCE_SECS)
        super().__init__(count)

    may_start = threading.Event()


@pytest.mark.parametrize("how", ["training ends", "training begins again"])
def test_a_move_ends_with_its_training(tmp_path, how):
    Held.may_start.clear()
    with thread_servers(1) as servers:
        training = Training(tmp_path, of(servers), start=Held)
        with training.moves:
            request = training.ask(2)
            training.step()
            training.step()
            threading.Timer(0.2, Held.may_start.set).start()
            if how == "training begins again":
                training.begin(2)
                training.step()
        report = training.files.read_state().move
        assert report is not None
        assert report.id == request.id
        assert report.figures.stage is MoveStage.GIVEN_UP
        expected = "training has ended first" if how == "training ends" else "training began again"
        assert expected in report.problem["what"]


def test_a_request_of_an_earlier_training_is_removed(tmp_path):
    files = MoveFiles(tmp_path / "servers")
    files.folder.mkdir()
    files.ask(MoveRequest(new_id(), new_id(), 2))
    with thread_servers(1) as servers:
        training = Training(tmp_path, of(servers))
        with training.moves:
            assert not files.request.exists()
            training.step()
        assert training.told == []


def test_lost_servers_of_training_are_its_own_error(tmp_path, monkeypatch):
    """Not that of the move: training begins again from its newest checkpoint, as without one."""

    def lose() -> None:
        raise ServerLost("the server has lost its rows")

    with thread_servers(3) as servers:
        training = Training(tmp_path, of(servers[:1]))
        with training.moves:
            training.step()
            request = training.ask(addresses(servers[1:]))
            monkeypatch.setattr(training.engine, "finish", lose)
            training.step()
            with pytest.raises(ServerLost, match="lost its rows"):
                training.step_until_the_end()
            monkeypatch.undo()
            training.begin(2)
            training.step()
        report = training.files.read_state().move
        assert report is not None
        assert (report.id, report.figures.stage) == (request.id, MoveStage.GIVEN_UP)
        assert "training began again" in report.problem["what"]


@pytest.mark.medium
def test_hashed_tables_are_moved(tmp_path):
    with thread_servers(5) as servers:
        training = Training(tmp_path, of(servers[:2]), hashed=HASHED)
        with training.moves:
            for target in (servers[2:], servers[:1]):
                report = training.report(training.ask(addresses(target)))
                assert (report.figures.stage, report.problem) == (MoveStage.DONE, {})
            training.step()
            assert_same(training.engine.state(), training.alone.state())
            report = training.report(training.ask(addresses(servers[1:3]), mixed_plan(FEATURES, 2)))
            assert report.figures.stage is MoveStage.GIVEN_UP
            assert "hashed tables must be placed without a plan" in report.problem["what"]


@contextmanager
def workers_of(servers, count: int = 2):
    """Embedding workers that were started with these servers."""
    with ExitStack() as stack:
        yield [stack.enter_context(closing(ThreadWorker(addresses(servers)))) for _ in range(count)]


def through(servers, workers) -> RunServers:
    return replace(of(servers), workers=addresses(workers))


@pytest.mark.parametrize("hashed", [{}, HASHED], ids=["plain", "hashed"])
def test_embedding_workers_take_the_other_servers(tmp_path, hashed):
    """Also one that is asked for the first time after the moves, and servers that training starts, whose token workers did not have."""
    with thread_servers(5) as servers, workers_of(servers[:2]) as workers:
        training = Training(tmp_path, through(servers[:2], workers), hashed=hashed)
        with training.moves:
            for target in (addresses(servers[2:]), addresses(servers[:1]), 2):
                report = training.report(training.ask(target))
                assert (report.figures.stage, report.problem) == (MoveStage.DONE, {})
            training.step()
            workers[0].close()
            training.step()
            assert_same(training.engine.state(), training.alone.state())
            training.begin(2)
            training.step()
            assert_same(training.engine.state(), training.alone.state())
        assert workers[1].worker.status().updates > 0


def test_a_batch_that_was_looked_up_before_a_move_of_workers_is_updated_after_it(tmp_path):
    with thread_servers(3) as servers, workers_of(servers[:1]) as workers:
        training = Training(tmp_path, through(servers[:1], workers))
        with training.moves:
            training.step()
            batch = random_batch(FEATURES, 99)
            assert training.engine.lookup(batch).tobytes() == training.alone.lookup(batch).tobytes()
            assert training.report(training.ask(addresses(servers[1:]))).figures.stage is MoveStage.DONE
            for engine in (training.engine, training.alone):
                engine.apply_gradients(batch, gradients_of(batch, engine.width, 99))
            assert_same(training.engine.state(), training.alone.state())


def test_servers_that_a_worker_does_not_reach_end_the_move(tmp_path, monkeypatch):
    """They answer training alone; it goes on through the worker to those before."""
    with thread_servers(2) as servers, workers_of(servers[:1], 1) as workers:
        connect = workers[0].worker._connect

        def cut(greeting, check, named):
            if named is not None:
                raise ServerLost("a server must answer", where=str(named.addresses[0]))
            return connect(greeting, check, named)

        monkeypatch.setattr(workers[0].worker, "_connect", cut)
        training = Training(tmp_path, through(servers[:1], workers))
        with training.moves:
            report = training.report(training.ask(addresses(servers[1:])))
            assert (report.figures.stage, report.problem["what"]) == (MoveStage.GIVEN_UP, "a server must answer")
            monkeypatch.undo()
            monkeypatch.setattr(server_moves, "_LOOK_SECS", 0.0)
            assert training.report(training.ask(addresses(servers[1:]))).figures.stage is MoveStage.DONE


def test_a_worker_that_is_lost_at_the_switch_costs_the_attempt_alone(tmp_path, monkeypatch):
    """The rows before are as they were, and the next attempt has the servers before."""
    with thread_servers(3) as servers, workers_of(servers[:1], 1) as workers:
        training = Training(tmp_path, through(servers[:1], workers))
        with training.moves:
            training.step()
            request = training.ask(addresses(servers[1:]))
            own = workers[0].worker
            open_ = own._open

            def lose(session, body):
                if b'"servers":null' not in bytes(body):
                    raise ServerLost("a server must answer")
                return open_(session, body)

            monkeypatch.setattr(own, "_open", lose)
            with pytest.raises(ServerLost):
                training.step_until_the_end()
            training.begin(2)
            report = training.files.read_state().move
            assert (report.id, report.figures.stage) == (request.id, MoveStage.GIVEN_UP)
            assert training.moves.servers.addresses == addresses(servers[:1])
            training.step()
            assert_same(training.engine.state(), training.alone.state())
            monkeypatch.setattr(own, "_open", open_)
            assert training.report(training.ask(addresses(servers[1:]))).figures.stage is MoveStage.DONE
