"""Parts and commits in a bucket whose server fails or refuses: what a job does after each error."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.fault_proxy import Action, Fault, Proxy, proxied
from tests.support.gcs_server import GcsServer
from tests.trainer.checkpoints.job_states import (
    assert_equal,
    checkpoint,
    commit_of,
    cut,
    find_facts,
    names_of,
    publish_all,
    write_parts,
)
from trainer.checkpoints.checkpoint import read_newest
from trainer.checkpoints.parts import write_part
from trainer.checkpoints.publish import publish
from trainer.errors import CheckpointNotWritten, CommitConflict
from trainer.job.control.publishing import NotPublished
from trainer.scheduling.holds import ErrorClass, classify, describe_error

UPLOAD = r"^POST /upload"
ALWAYS = range(1, 1000)
FAULTS: list[tuple[Action, ErrorClass]] = [
    (503, ErrorClass.TRANSIENT),
    (429, ErrorClass.TRANSIENT),
    ("refuse", ErrorClass.TRANSIENT),
    (403, ErrorClass.PERMANENT),
]


@pytest.fixture
def proxy(gcs_server: GcsServer) -> Iterator[Proxy]:
    with proxied(gcs_server.address) as proxy:
        yield proxy


@pytest.fixture
def run_dir(gcs_server: GcsServer, proxy: Proxy) -> str:
    """A run directory behind the proxy, whose requests are repeated for a short time only."""
    return GcsServer(proxy.address).home(gcs_server.bucket(), "run", retry_limit_seconds=0.2)


def class_of(error: BaseException) -> ErrorClass:
    return classify(describe_error(error))


@pytest.mark.parametrize(("action", "expected"), FAULTS)
def test_a_part_that_is_not_written(run_dir: str, proxy: Proxy, action: Action, expected: ErrorClass) -> None:
    proxy.faults[:] = [Fault(UPLOAD, action, ALWAYS)]
    with pytest.raises(CheckpointNotWritten) as caught:
        write_part(run_dir, *cut(checkpoint(1), 0, 1, 1))
    assert class_of(caught.value) is expected


@pytest.mark.medium
@pytest.mark.parametrize(("action", "expected"), FAULTS)
def test_a_commit_that_is_not_published(run_dir: str, proxy: Proxy, action: Action, expected: ErrorClass) -> None:
    """It is certainly not published: nothing of it is there, and the next attempt publishes its epoch."""
    parts = write_parts(run_dir, checkpoint(1), 1, 1)
    proxy.faults[:] = [Fault(UPLOAD, action, ALWAYS)]
    with pytest.raises(CheckpointNotWritten) as caught:
        publish(run_dir, commit_of(checkpoint(1), 1), names_of(1), parts, find_facts)
    given_up = NotPublished("no")
    given_up.__cause__ = caught.value  # as the controller's publisher raises it
    assert class_of(caught.value) is class_of(given_up) is expected
    proxy.faults.clear()
    assert read_newest(run_dir, on_skip=pytest.fail) is None
    publish_all(run_dir, checkpoint(1), 1, attempt=2)
    found = read_newest(run_dir, on_skip=pytest.fail)
    assert found is not None
    assert_equal(found, checkpoint(1))


@pytest.mark.parametrize("action", [503, "refuse", "lose"])
def test_a_fault_that_passes_delays_the_commit_only(gcs_server: GcsServer, proxy: Proxy, action: Action) -> None:
    run_dir = GcsServer(proxy.address).home(gcs_server.bucket(), "run")
    proxy.faults[:] = [Fault(UPLOAD, action, (1, 5))]
    publish_all(run_dir, checkpoint(1), 1, attempt=1)
    found = read_newest(run_dir, on_skip=pytest.fail)
    assert found is not None
    assert_equal(found, checkpoint(1))


@pytest.mark.medium
def test_a_conflict_holds_the_job(run_dir: str) -> None:
    """To train the epoch again would lose against the other controller again."""
    publish_all(run_dir, checkpoint(1), 1, attempt=1)
    with pytest.raises(CommitConflict) as caught:
        publish_all(run_dir, checkpoint(1), 1, attempt=2)
    assert class_of(caught.value) is ErrorClass.PERMANENT
