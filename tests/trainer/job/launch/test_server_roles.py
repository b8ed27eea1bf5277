"""Where the supervisor of a job looks for its servers: at the addresses that hosts have written, in the run's folder or bucket."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from tests.support.processes import PATIENCE_SECS, free_port
from trainer.job.launch.server_roles import BackgroundLook, ServerRoles
from trainer.servers.moves.job_moves import documents_of_run
from trainer.servers.moves.move_documents import TrainingServers, new_id
from trainer.servers.run_servers import RunServers
from trainer.wire.flight.addresses import Address

pytestmark = pytest.mark.medium
GIVEN = RunServers((Address("127.0.0.1", 1), Address("127.0.0.1", 2)), run=5)
OTHERS = (Address("127.0.0.1", 3),)


def found(run_dir: str, servers: RunServers = GIVEN) -> tuple[Address, ...]:
    """After a look; one in a bucket ends beside the call that begins it."""
    find = ServerRoles.of_run(servers, run_dir, release="1")._find
    find()
    if isinstance(find, BackgroundLook):
        find._thread.join(PATIENCE_SECS)
    return find()


@pytest.mark.parametrize("place", ["folder", "bucket"])
def test_servers_are_those_of_the_newest_state_of_this_launch(place, tmp_path, gcs_server):
    (tmp_path / "servers").mkdir()
    run = str(tmp_path) if place == "folder" else gcs_server.home(gcs_server.bucket(), "run")
    assert found(run) == GIVEN.addresses
    documents_of_run(run).write_state(TrainingServers(new_id(), OTHERS, run=6))
    assert found(run) == OTHERS
    assert found(run, replace(GIVEN, run=7)) == GIVEN.addresses


def test_a_bucket_that_does_not_answer_ends_no_job():
    run = f"gs://anonymous@bucket/run?endpoint_override=127.0.0.1:{free_port()}&scheme=http&retry_limit_seconds=0.2"
    assert found(run) == GIVEN.addresses


def test_a_look_that_takes_long_delays_no_call():
    begun, may_end = threading.Event(), threading.Event()

    def read():
        begun.set()
        may_end.wait(PATIENCE_SECS)
        return OTHERS

    find = BackgroundLook(read, GIVEN.addresses)
    assert find() == GIVEN.addresses
    assert begun.wait(PATIENCE_SECS)
    assert find() == GIVEN.addresses
    may_end.set()
    find._thread.join(PATIENCE_SECS)
    assert find() == OTHERS
