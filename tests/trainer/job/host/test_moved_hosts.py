"""Tables of hosts move to other servers between two attempts: training goes on with the same bits, and all hosts agree where they are."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import replace

import pytest

from tests.support.embedding_workers import ThreadWorker
from tests.support.parameter_servers import thread_servers
from tests.support.processes import PATIENCE_SECS, free_port
from tests.trainer.job.host.training_ways import ROWS, batches_of, config_of, in_turn
from tests.trainer.tables.routes.partitioned.plans import mixed_plan
from tests.trainer.thread_channels import on_channels
from trainer.errors import ServerLost
from trainer.job.host import served_host_weights
from trainer.job.host.served_host_weights import ServedHostWeights
from trainer.job.host.sharded_weights import empty_batch
from trainer.options.combinations import MOVING
from trainer.planning.plan import PartitionPlan, Slice, TablePlan
from trainer.run.progress.lock import is_locked
from trainer.run.weights.one_engine import joined_features
from trainer.run.weights.run_state import AttemptBeginning
from trainer.servers.moves import move_checks
from trainer.servers.moves.engine_move import MoveStage
from trainer.servers.moves.job_moves import JobMoves
from trainer.servers.moves.move_documents import MoveFiles, MoveRequest, new_id
from trainer.servers.run_servers import RunServers
from trainer.tables.spec import tables_of
from trainer.wire.flight.addresses import Address

pytest.importorskip("tensorflow")
HOSTS = 2


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    options = config_of(tmp_path_factory.mktemp("run"), "dlrm")
    return options, *batches_of(options)


@pytest.fixture
def places():
    """Servers of three runs: two, three and one."""
    with ExitStack() as stack:
        yield [stack.enter_context(thread_servers(count)) for count in (2, 3, 1)]


def of(servers, run: int = 1) -> RunServers:
    return RunServers(tuple(one.address for one in servers), run=run, patience_secs=PATIENCE_SECS)


class Job:
    """The hosts of a job in threads; a call of :meth:`attempt` is one attempt of all hosts, in which each trains a third of its batches."""

    setup = MOVING

    def __init__(self, scene, servers: RunServers, folder, hosts: int = HOSTS) -> None:
        self.options, self.prepared, batches = scene
        self.hosts, self.files, self.attempts = hosts, MoveFiles(folder / "servers"), 0
        padded = [*batches, *[empty_batch(self.prepared.layout, ROWS, self.prepared.head)] * (-len(batches) % hosts)]
        self.batches = [padded[rank::hosts] for rank in range(hosts)]
        self.done, self.saved = 0, None
        self.start(servers)

    def start(self, servers: RunServers) -> None:
        """As processes that begin with these servers and nothing in memory."""
        self.moves = [JobMoves(servers, self.files, setup=self.setup) for _ in range(self.hosts)]
        self.weights: list[ServedHostWeights | None] = [None] * self.hosts

    def attempt(self, *, continues: bool) -> list[bytes]:
        """The logits of all hosts."""
        self.attempts += 1
        steps = -(-len(self.batches[0]) // 3)

        def work(channels):
            rank = channels.steps.rank
            weights = ServedHostWeights(
                self.prepared.layout, self.options, self.prepared.head, channels, self.moves[rank]
            )
            if (before := self.weights[rank]) is not None:  # the channels of an attempt are new ones
                weights.dense.load_state(before.dense.state())
                weights._tables, weights._connected = before._tables, before._connected
            weights.begin_attempt(AttemptBeginning(self.attempts, lambda: None, lambda: None, continues=continues))
            if not continues:
                weights.load(weights.initial_arrays() if self.saved is None else self.saved[rank])
            logits = in_turn(weights, self.batches[rank][self.done : self.done + steps])
            self.weights[rank] = weights
            return [one.tobytes() for one in logits], weights.arrays()

        found = on_channels(self.hosts, work)
        self.done += steps
        self.saved = [arrays for _, arrays in found]
        return [logit for logits, _ in found for logit in logits]

    def ask(self, servers, plan=None) -> MoveRequest:
        addresses = servers if isinstance(servers, int) else tuple(one.address for one in servers)
        request = MoveRequest(new_id(), self.files.read_state().training, addresses, plan)
        self.files.ask(request)
        return request

    def close(self) -> None:
        for one in self.moves:
            one.close()
        for one in self.weights:
            if one is not None:
                one.tables.engine.close()


@pytest.fixture
def make(scene, tmp_path):
    made = []

    def job(servers, name="run", hosts=HOSTS):
        made.append(Job(scene, servers, tmp_path / name, hosts))
        return made[-1]

    yield job
    for one in made:
        with suppress(ServerLost):
            one.close()


def rows_of(job: Job) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in job.saved[0].items()}


@pytest.fixture
def expected(make):
    with thread_servers(2) as servers:
        calm = make(of(servers), "calm")
        logits = [*calm.attempt(continues=False), *calm.attempt(continues=True), *calm.attempt(continues=True)]
        return logits, rows_of(calm)


@pytest.mark.slow
@pytest.mark.parametrize("continues", [True, False])
def test_tables_move_between_two_attempts(make, places, expected, continues):
    """Rows are copied where the hosts go on from what they have, and loaded where they go on from a commit."""
    job = make(of(places[0]))
    logits = job.attempt(continues=False)
    for place in places[1:]:
        request = job.ask(place)
        logits += job.attempt(continues=continues)
        state = job.files.read_state()
        assert state.servers == tuple(one.address for one in place)
        assert (state.move.id, state.move.figures.stage, state.move.problem) == (request.id, MoveStage.DONE, {})
        assert (state.move.figures.pause_rows > 0) == continues
        assert {one.servers.addresses for one in job.moves} == {state.servers}
    assert (logits, rows_of(job)) == expected
    assert is_locked(job.files.folder)


@pytest.mark.slow
def test_embedding_workers_take_the_servers_of_all_hosts_at_once(make, places, expected):
    """A worker a host. Hosts that are started again name the servers to them, too."""
    workers = [ThreadWorker([one.address for one in places[0]]) for _ in range(HOSTS)]
    own = replace(of(places[0]), workers=tuple(one.address for one in workers))
    job = make(own)
    logits = job.attempt(continues=False)
    request = job.ask(places[1])
    logits += job.attempt(continues=True)
    report = job.files.read_state().move
    assert (report.id, report.figures.stage, report.problem) == (request.id, MoveStage.DONE, {})
    assert report.figures.pause_rows > 0
    job.close()
    job.start(own)
    logits += job.attempt(continues=False)
    assert (logits, rows_of(job)) == expected
    assert all(one.worker.status().updates > 0 for one in workers)
    for one in workers:
        one.close()


@pytest.mark.slow
def test_hashed_tables_move_between_two_attempts(places, tmp_path):
    """With the ages of their rows; places for all ids, so that nothing depends on the number of servers."""
    options = config_of(tmp_path / "options", "dlrm", hashed={"user": {"capacity": 100_000}})
    scene = options, *batches_of(options)
    calm, moved = (Job(scene, of(places[k]), tmp_path / f"job {k}") for k in (1, 0))
    logits = []
    for k in range(3):
        logits.append(moved.attempt(continues=k > 0))
        assert logits[k] == calm.attempt(continues=k > 0)
        if k == 0:
            request = moved.ask(places[2])
    report = moved.files.read_state().move
    assert (report.id, report.figures.stage) == (request.id, MoveStage.DONE)
    assert report.figures.pause_rows
    expected, found = rows_of(calm), rows_of(moved)
    assert any("/ages/user" in name for name in expected)
    assert {name: one for name, one in found.items() if "/steps/" not in name} == {
        name: one for name, one in expected.items() if "/steps/" not in name
    }
    for job in (calm, moved):
        job.close()


@pytest.mark.slow
def test_pruned_tables_move_between_two_attempts(places, tmp_path):
    """With the importance of all rows and the values of those that have left; as many servers, of which each has its share of the places."""
    options = config_of(tmp_path / "options", "dlrm", pruning={"budget": 0.5, "round_steps": 2, "reset": "restored"})
    scene = options, *batches_of(options)
    with thread_servers(2) as target:
        calm, moved = (Job(scene, of(places[k][:2]), tmp_path / f"job {k}") for k in (1, 0))
        for k in range(3):
            assert moved.attempt(continues=k > 0) == calm.attempt(continues=k > 0)
            if k == 0:
                request = moved.ask(target)
        report = moved.files.read_state().move
        assert (report.id, report.figures.stage, report.problem) == (request.id, MoveStage.DONE, {})
        assert report.figures.pause_rows
        assert {name.partition("/")[0] for name in rows_of(moved)} >= {"embedding-importance", "embedding-left"}
        assert rows_of(moved) == rows_of(calm)
        for job in (calm, moved):
            job.close()


@pytest.mark.slow
def test_hosts_that_are_started_again_find_the_tables(make, places, expected):
    """Also those that begin with the servers of the job's begin; a later launch has servers of its own."""
    job = make(of(places[0]))
    logits = job.attempt(continues=False)
    job.ask(places[1])
    logits += job.attempt(continues=True)
    job.close()
    job.start(of(places[0]))
    logits += job.attempt(continues=False)
    assert (logits, rows_of(job)) == expected
    assert {one.servers.addresses for one in job.moves} == {tuple(one.address for one in places[1])}
    job.close()
    later = of(places[0], run=job.moves[0].servers.run + 1)
    job.start(later)
    job.done -= 1
    job.attempt(continues=False)
    assert {one.servers for one in job.moves} == {later}


@pytest.mark.slow
def test_a_plan_goes_with_a_request_and_to_hosts_that_are_started_again(make, scene, places, expected):
    features = joined_features(scene[1].layout, scene[0], scene[1].head)
    job = make(of(places[0]))
    logits = job.attempt(continues=False)
    job.ask(places[1], mixed_plan(features[1:], 3))
    logits += job.attempt(continues=True)
    job.close()
    job.start(of(places[0]))
    logits += job.attempt(continues=False)
    assert (logits, rows_of(job)) == expected
    assert {one.servers.plan for one in job.moves} == {mixed_plan(features[1:], 3)}
    job.done -= 1
    request = job.ask(places[2])
    job.attempt(continues=True)
    assert "needs a plan for the new servers" in job.files.read_state().move.problem["what"]
    other = tables_of([replace(one, table=replace(one.table, vocabulary_size=3)) for one in features[:1]])
    wrong = PartitionPlan(1, tuple(TablePlan(one.name, 3, one.dim, (Slice(0, one.dim, (0,)),)) for one in other))
    job.done -= 1
    request = job.ask(places[2], wrong)
    job.attempt(continues=True)
    report = job.files.read_state().move
    assert (report.id, report.figures.stage) == (request.id, MoveStage.GIVEN_UP)
    assert "as large as the engine's" in report.problem["what"]


@pytest.mark.slow
@pytest.mark.parametrize("case", ["count", "same", "away", "other training"])
def test_a_request_that_cannot_be_met_changes_nothing(make, places, expected, monkeypatch, case):
    monkeypatch.setattr(move_checks, "FIRST_ANSWER_SECS", 0.2)
    job = make(of(places[0]))
    logits = job.attempt(continues=False)
    if case == "away":
        request = MoveRequest(new_id(), job.files.read_state().training, (Address("127.0.0.1", free_port()),))
        job.files.ask(request)
    elif case == "other training":
        request = MoveRequest(new_id(), new_id(), tuple(one.address for one in places[1]))
        job.files.ask(request)
    else:
        request = job.ask(3 if case == "count" else places[0])
    logits += job.attempt(continues=True)
    report = job.files.read_state().move
    assert (report.id, report.figures.stage) == (request.id, MoveStage.GIVEN_UP)
    problems = {
        "count": "addresses of running servers",
        "same": "needs other servers",
        "away": "must",
        "other training": "the training that runs",
    }
    assert problems[case] in report.problem["what"]
    assert report.problem["next_step"]
    logits += job.attempt(continues=True)
    assert (logits, rows_of(job)) == expected


@pytest.mark.slow
def test_a_move_that_fails_in_the_middle_leaves_the_tables_where_they_are(make, places, monkeypatch):
    """The attempt fails, and the next one goes on from the commit, on the servers before."""
    calm, job = make(of(places[2]), "calm", hosts=1), make(of(places[0]), hosts=1)
    logits = job.attempt(continues=False)
    assert logits == calm.attempt(continues=False)
    request = job.ask(places[1])

    def lost(*given):
        raise ServerLost("a server must answer", where="there")

    monkeypatch.setattr(served_host_weights, "copy_tables", lost)
    with pytest.raises(ServerLost):
        job.attempt(continues=True)
    report = job.files.read_state().move
    assert (report.id, report.figures.stage, report.problem["where"]) == (request.id, MoveStage.GIVEN_UP, "there")
    assert job.files.read_state().servers == of(places[0]).addresses
    job.weights = [None]
    assert job.attempt(continues=False) == calm.attempt(continues=True)
    assert rows_of(job) == rows_of(calm)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("spares", "the tables of a job with spare servers must stay on its servers while it runs"),
        ("scales", "the tables of a job that scales its servers must stay on them while it runs"),
    ],
)
def test_the_tables_of_a_job_with_servers_that_have_none_stay(make, places, monkeypatch, expected, kind, reason):
    """Also where a server without tables makes each attempt one without an engine that could move."""
    monkeypatch.setattr(Job, "setup", replace(MOVING, **{kind: True}))
    job = make(of(places[0]))
    logits = job.attempt(continues=False)
    request = job.ask(places[1])
    logits += job.attempt(continues=True)
    report = job.files.read_state().move
    assert (report.id, report.figures.stage) == (request.id, MoveStage.GIVEN_UP)
    assert report.problem["what"] == reason
    assert job.moves[0].servers.addresses == of(places[0]).addresses
    logits += job.attempt(continues=True)
    assert (logits, rows_of(job)) == expected
