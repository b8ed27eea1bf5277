"""The documents of moves of a run in a bucket: each state is written once, and each request is taken by the training that is asked."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.support.gcs_server import GcsServer
from trainer.errors import TornCheckpoint
from trainer.servers.moves.bucket_moves import BucketMoves
from trainer.servers.moves.job_moves import JobMoves, MoveDocuments, documents_of_run
from trainer.servers.moves.move_documents import MoveFiles, MoveRequest, TrainingServers, new_id
from trainer.servers.run_servers import RunServers
from trainer.tables.routes.exchange import OneHost
from trainer.wire.flight.addresses import Address
from transforms.errors import Busy, DataError, NotFound
from warehouse.storage.storage import Storage

pytestmark = pytest.mark.medium


def state(training: str, port: int = 1, run: int = 0) -> TrainingServers:
    return TrainingServers(training, (Address("a", port),), run=run)


@pytest.fixture
def run(gcs_server: GcsServer) -> str:
    return gcs_server.home(gcs_server.bucket(), "run")


@pytest.fixture(params=["folder", "bucket"])
def documents(request, tmp_path, run: str) -> MoveDocuments:
    found = documents_of_run(str(tmp_path) if request.param == "folder" else run)
    assert isinstance(found, MoveFiles if request.param == "folder" else BucketMoves)
    return found


def test_a_state_is_the_newest_and_a_request_is_taken_once(documents):
    """The same for both places."""
    with documents.offered():
        with pytest.raises(NotFound, match="trained on servers"):
            documents.read_state()
        training = new_id()
        for port in (1, 2, 3):
            documents.write_state(state(training, port))
            assert documents.read_state() == state(training, port)
        one, other = (MoveRequest(new_id(), training, count) for count in (1, 2))
        assert documents.take_request() is None
        documents.ask(one)
        with pytest.raises(Busy, match="request is not finished"):
            documents.ask(other)
        assert not documents.withdraw(other)
        assert documents.take_request() == one
        assert documents.take_request() is None
        documents.ask(other)
        assert documents.withdraw(other)
        assert not documents.withdraw(other)
        documents.ask(one)
        documents.discard_requests()
        assert documents.take_request() is None


def test_another_process_finds_the_state_and_a_process_without_its_place_writes_none(run):
    old, training = BucketMoves(run), new_id()
    old.write_state(state(training))
    new, later = BucketMoves(run), new_id()
    assert new.read_state() == state(training)
    new.write_state(state(later, 2, run=2))
    with pytest.raises(Busy, match="written by one process at a time"):
        old.write_state(state(training, 3))
    assert BucketMoves(run).read_state() == state(later, 2, run=2)


def test_a_host_that_another_one_replaced_fails_once_and_then_finds_the_servers_of_that_one(run):
    """Its attempt fails; as rank 0 of a later one it goes on with the servers that the other host has moved the tables to."""
    given = RunServers((Address("a", 1), Address("a", 2)), run=5)
    hosts = [JobMoves(given, documents_of_run(run)) for _ in range(2)]
    for host in hosts:
        assert host.agree(OneHost(), None, lambda: None) is None
    hosts[1].servers = moved = replace(given, addresses=(Address("b", 1),), run=9)
    hosts[1]._write(None)
    with pytest.raises(Busy, match="written by one process at a time"):
        hosts[0]._write(None)
    assert hosts[0].agree(OneHost(), None, lambda: None) is None
    assert (hosts[0].servers.addresses, hosts[0].servers.run) == (moved.addresses, moved.run)


def test_a_training_takes_only_its_own_requests(run):
    first, second = BucketMoves(run), BucketMoves(run)
    first.write_state(state(new_id()))
    training = second.read_state().training
    second.write_state(state(new_id(), 2))
    request = MoveRequest(new_id(), training, 2)
    BucketMoves(run).ask(request)
    assert second.take_request() is None
    assert first.take_request() == request


def test_few_objects_stay(run):
    documents, training = BucketMoves(run), new_id()
    for port in range(9):
        documents.write_state(state(training, port))
    storage = Storage(run)
    assert len(storage.list(f"{storage.root}/servers")) == 2


def test_states_that_a_killed_process_left_are_not_read_and_are_removed_by_the_next_one(run):
    """It was killed after it had created a state, and before it removed earlier ones."""
    left, training, storage = BucketMoves(run), new_id(), Storage(run)
    for port in range(3):
        left.write_state(state(training, port))
    for number in (1, 4, 5):
        place = f"{storage.root}/servers/state-{number:08d}.json"
        storage.write_atomic(place, json.dumps(state(training, 10 * number).to_document()).encode())
    documents = BucketMoves(run)
    assert documents.read_state() == state(training, 50)
    documents.write_state(state(new_id(), 60))
    names = [one.path.rpartition("/")[2] for one in storage.list(f"{storage.root}/servers")]
    assert names == ["state-00000005.json", "state-00000006.json"]


@pytest.mark.parametrize("content", [b"", b"[", b"\xff", b"{}", b'{"format": 1}', b"null"])
def test_a_damaged_document_is_refused_with_one_error(run, content):
    documents, training, storage = BucketMoves(run), new_id(), Storage(run)
    documents.write_state(state(training))
    storage.write_atomic(f"{storage.root}/servers/request-{training}.json", content)
    assert not documents.withdraw(MoveRequest(new_id(), training, 1))
    with pytest.raises(DataError, match="must be one of headrace ps move"):
        documents.take_request()
    assert documents.take_request() is None
    storage.write_atomic(f"{storage.root}/servers/state-00000002.json", content)
    with pytest.raises(TornCheckpoint):
        documents.read_state()
