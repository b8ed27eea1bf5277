"""The documents of moves: strict when read, whatever is in their files."""

from __future__ import annotations

import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.planning.plans import plans
from trainer.errors import MoveGivenUp, TornCheckpoint
from trainer.options.document_field import DocumentField
from trainer.planning.plan import PartitionPlan
from trainer.run.progress.lock import is_locked, run_lock
from trainer.servers.moves.engine_move import MoveFigures, MoveStage
from trainer.servers.moves.move_documents import MoveFiles, MoveReport, MoveRequest, TrainingServers, new_id, problem_of
from trainer.servers.moves.move_requests import wait_for_move
from trainer.wire.flight.addresses import Address
from transforms.errors import Busy, DataError, HeadraceError, InputError, NotFound

IDS = st.builds(new_id)
ADDRESSES = st.builds(Address, st.sampled_from(["127.0.0.1", "ps-0", "::1", "a.b"]), st.integers(0, 65535))
SERVERS = st.one_of(st.integers(1, 4096), st.lists(ADDRESSES, min_size=1, max_size=5, unique=True).map(tuple))
TABLES = [("one", 30, 4, True), ("two", 7, 3, False)]
REPORTS = st.builds(
    MoveReport,
    IDS,
    st.builds(MoveFigures, st.sampled_from(MoveStage), st.integers(0, 1 << 40), st.integers(0, 9), st.integers(0, 1 << 40),
              st.floats(0, 1e6), st.floats(0, 1e6)),
    st.dictionaries(st.sampled_from(["what", "where", "value", "allowed", "next_step"]), st.text(max_size=9)),
)  # fmt: skip
STATES = st.lists(ADDRESSES, min_size=1, max_size=4).map(tuple).flatmap(
    lambda servers: st.builds(TrainingServers, IDS, st.just(servers), st.booleans(), st.none() | plans(TABLES, len(servers)), st.none() | REPORTS,
                              st.integers(0, 1 << 62))
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["127.0.0.1:1", "9" * 5000]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def through_json(document: object) -> DocumentField:
    return DocumentField(json.loads(json.dumps(document)), "a document")


@given(IDS, IDS, SERVERS, st.data())
def test_requests_are_read_as_they_were_written(name, training, servers, data):
    count = servers if isinstance(servers, int) else len(servers)
    plan = data.draw(plans(TABLES, count)) if count <= 4 else None
    request = MoveRequest(name, training, servers, plan)
    assert MoveRequest.read(through_json(request.to_document())) == request


@pytest.mark.medium
@given(STATES)
def test_states_are_read_as_they_were_written(state):
    assert TrainingServers.read(through_json(state.to_document())) == state


def test_a_plan_of_a_state_has_a_core_for_each_server():
    state = TrainingServers(new_id(), (Address("a", 1),), plan=PartitionPlan(2, ()))
    with pytest.raises(TornCheckpoint, match="a core for each server"):
        TrainingServers.read(through_json(state.to_document()))


@pytest.mark.medium
@given(
    st.one_of(IDS.map(lambda name: MoveRequest(name, name, 2).to_document()), STATES.map(TrainingServers.to_document)),
    st.data(),
)
def test_a_changed_document_is_read_or_refused_with_one_error(document, data):
    changed = dict(document)
    for _ in range(data.draw(st.integers(1, 2))):
        name = data.draw(st.sampled_from([*document, "another"]))
        if data.draw(st.booleans()):
            changed[name] = data.draw(JSON)
        else:
            changed.pop(name, None)
    for read in (MoveRequest.read, TrainingServers.read):
        try:
            found = read(through_json(changed))
        except HeadraceError:
            continue
        assert found.to_document().keys() == changed.keys()


@given(JSON)
def test_any_json_is_refused_with_one_error(document):
    for read in (MoveRequest.read, TrainingServers.read):
        with pytest.raises(HeadraceError):
            read(through_json(document))


@pytest.mark.parametrize(
    ("servers", "plan", "problem"),
    [
        ((Address("a", 1), Address("a", 1)), None, "must be different"),
        (3, PartitionPlan(2, ()), "a plan must have a core for each server"),
    ],
)
def test_servers_that_cannot_be_are_refused(servers, plan, problem):
    with pytest.raises(InputError, match=problem):
        MoveRequest(new_id(), new_id(), servers, plan)


@pytest.mark.parametrize("content", [b"", b"[", b"\xff", b"[" * 100_000, b"{}", b'{"format": 1}', b"null"])
def test_a_damaged_request_is_refused_and_removed(tmp_path, content):
    files = MoveFiles(tmp_path)
    files.request.write_bytes(content)
    with pytest.raises(DataError, match="must be one of headrace ps move"):
        files.take_request()
    assert files.take_request() is None
    files.state.write_bytes(content)
    with pytest.raises(TornCheckpoint):
        files.read_state()


def test_a_request_is_taken_once_and_one_at_a_time(tmp_path):
    files = MoveFiles(tmp_path)
    one, other = (MoveRequest(new_id(), new_id(), count) for count in (1, 2))
    files.ask(one)
    with pytest.raises(Busy, match="request is not finished"):
        files.ask(other)
    assert not files.withdraw(other)
    assert files.take_request() == one
    assert files.take_request() is None
    files.ask(other)
    assert files.withdraw(other)
    assert not files.withdraw(other)
    assert [path.name for path in tmp_path.iterdir()] == []


def test_a_run_that_was_never_on_servers_has_no_state(tmp_path):
    with pytest.raises(NotFound, match="trained on servers"):
        MoveFiles(tmp_path).read_state()


def test_a_problem_has_the_attributes_of_its_error():
    error = DataError("what", where="there", value=3, next_step="again")
    assert problem_of(error) == {"what": "what", "where": "there", "value": "3", "next_step": "again"}
    assert problem_of(ValueError("other")) == {"what": "ValueError: other"}


class Training:
    """Says one thing after the other, each time it is waited for."""

    def __init__(self, files: MoveFiles, request: MoveRequest, *figures: MoveFigures, problem=None) -> None:
        self.files, self.request, self.left, self.problem = files, request, list(figures), problem or {}
        self.seen: list[MoveFigures] = []

    def go_on(self, secs: float = 0.0) -> None:
        report = MoveReport(self.request.id, self.left.pop(0), self.problem) if self.left else None
        self.files.write_state(TrainingServers(self.request.training, (Address("a", 1),), move=report))

    def wait(self) -> TrainingServers:
        return wait_for_move(
            self.files, self.request, partial(is_locked, self.files.folder), self.seen.append, sleep=self.go_on
        )


@pytest.fixture
def asked(tmp_path):
    files, request = MoveFiles(tmp_path), MoveRequest(new_id(), new_id(), 2)
    with run_lock(tmp_path):
        files.write_state(TrainingServers(request.training, (Address("a", 1),)))
        files.ask(request)
        yield files, request


def test_a_move_is_waited_for(asked):
    copying, done = MoveFigures(MoveStage.COPYING, 5), MoveFigures(MoveStage.DONE, 9)
    training = Training(*asked, MoveFigures(), copying, done)
    after = training.wait()
    assert after.move is not None
    assert after.move.figures == done
    assert training.seen == [MoveFigures(), copying]


def test_a_move_that_is_given_up_is_an_error_with_its_reason(asked):
    with pytest.raises(MoveGivenUp, match="tables were not moved: a server must answer") as raised:
        Training(
            *asked, MoveFigures(MoveStage.GIVEN_UP), problem={"what": "a server must answer", "where": "b:2"}
        ).wait()
    assert raised.value.where == "b:2"


@pytest.mark.parametrize("stage", [MoveStage.DONE, MoveStage.GIVEN_UP, MoveStage.COPYING])
def test_the_report_of_an_earlier_request_is_not_that_of_this_one(asked, stage):
    files, request = asked
    earlier = MoveReport(new_id(), MoveFigures(stage, 7), {"what": "another move"})
    files.write_state(TrainingServers(request.training, (Address("a", 1),), move=earlier))
    done = MoveFigures(MoveStage.DONE, 9)
    training = Training(files, request, done)
    after = training.wait()
    assert after.move == MoveReport(request.id, done)
    assert training.seen == []


def test_a_training_that_ends_is_not_waited_for(tmp_path):
    files, request = MoveFiles(tmp_path), MoveRequest(new_id(), new_id(), 2)
    files.write_state(TrainingServers(request.training, (Address("a", 1),)))
    files.ask(request)
    with pytest.raises(MoveGivenUp, match="training has ended"):
        Training(files, request).wait()
    assert not files.request.exists()


def test_a_training_that_was_started_again_is_another_one(asked):
    files, request = asked
    files.write_state(TrainingServers(new_id(), (Address("a", 1),)))
    with pytest.raises(MoveGivenUp, match="training has ended"):
        wait_for_move(files, request, lambda: True, lambda figures: None)


def test_a_lock_is_seen_without_taking_it(tmp_path):
    assert not is_locked(tmp_path)
    with run_lock(tmp_path):
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)
    with run_lock(tmp_path):
        pass
