from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.checkpoints.job_states import assert_equal, checkpoint, cut, document, publish_all, state
from trainer.checkpoints.checkpoint import read_epoch, read_newest, write_checkpoint
from trainer.checkpoints.host_part import LEDGER
from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.parts import write_part
from trainer.checkpoints.retention import (
    RECORD,
    Retention,
    apply_retention,
    kept_commits,
    recorded_policy,
    remove_leftovers,
)
from trainer.errors import TornCheckpoint
from transforms.errors import InputError

if TYPE_CHECKING:
    from tests.support.gcs_server import GcsServer


@pytest.fixture(params=["folder", "bucket"])
def run_dir(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    if request.param == "folder":
        return tmp_path / "run"
    server: GcsServer = request.getfixturevalue("gcs_server")
    return server.home(server.bucket(), "runs/ctr-v1")


def names(run_dir: str | Path) -> tuple[list[str], list[str]]:
    files = open_run(run_dir)
    return [name for name in files.folders("") if name.startswith("epoch-")], files.folders("parts")


@given(
    policy=st.builds(Retention, st.integers(1, 4), st.integers(0, 3), st.floats(0, 50)),
    commits=st.dictionaries(st.integers(1, 12), st.floats(0, 100), min_size=1),
)
@settings(max_examples=scaled(200))
def test_each_rule_keeps_its_commits_and_no_others(policy: Retention, commits: dict[int, float]) -> None:
    kept = kept_commits(policy, commits, 100.0)
    newest = sorted(commits)[-policy.newest :]
    for epochs, written in commits.items():
        wanted = (
            epochs in newest
            or (policy.every > 0 and epochs % policy.every == 0)
            or 100.0 - written < policy.younger_secs
        )
        assert (epochs in kept) == wanted
    assert max(commits) in kept
    assert list(kept) == sorted(kept, reverse=True)


@pytest.mark.parametrize(
    "wrong", [{"newest": 0}, {"every": -1}, {"younger_secs": -1.0}, {"younger_secs": float("nan")}]
)
def test_a_policy_that_keeps_nothing_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match="keep at least the newest"):
        Retention(**wrong)  # type: ignore[arg-type]


def test_commits_and_their_parts_are_removed_by_policy(run_dir: str | Path) -> None:
    for epochs in (1, 2, 3, 4):
        publish_all(run_dir, checkpoint(epochs), 2, attempt=10 + epochs)
    removed = apply_retention(run_dir, Retention(newest=1, every=2), now_secs=0.0)
    assert names(run_dir) == (["epoch-000002", "epoch-000004"], ["attempt-000012", "attempt-000014"])
    assert [place.rpartition("/")[2] for place in removed] == [
        "epoch-000001",
        "epoch-000003",
        "attempt-000011",
        "attempt-000013",
    ]
    assert recorded_policy(open_run(run_dir)) == Retention(1, 2)
    for epochs in (2, 4):
        assert_equal(read_epoch(run_dir, epochs), checkpoint(epochs))
    apply_retention(run_dir, Retention(newest=1), now_secs=0.0)
    assert names(run_dir) == (["epoch-000004"], ["attempt-000014"])
    assert recorded_policy(open_run(run_dir)) is None


def test_young_commits_are_kept(tmp_path: Path) -> None:
    for epochs in (1, 2, 3):
        place = publish_all(tmp_path, checkpoint(epochs), 1, attempt=epochs)
        os.utime(f"{place}/manifest.json", (1000.0 * epochs, 1000.0 * epochs))
    apply_retention(tmp_path, Retention(newest=1, younger_secs=1500.0), now_secs=3200.0)
    assert names(tmp_path)[0] == ["epoch-000002", "epoch-000003"]


def test_parts_of_the_attempt_that_is_being_written_stay(run_dir: str | Path) -> None:
    publish_all(run_dir, checkpoint(1), 2, attempt=1)
    write_part(run_dir, *cut(checkpoint(2), 0, 2, attempt=2))  # was given up
    publish_all(run_dir, checkpoint(2), 2, attempt=3)
    write_part(run_dir, *cut(checkpoint(3), 1, 2, attempt=4))
    apply_retention(run_dir, Retention(newest=1), now_secs=0.0)
    assert names(run_dir) == (["epoch-000002"], ["attempt-000003", "attempt-000004"])
    remove_leftovers(run_dir, below_attempt=4)
    assert names(run_dir)[1] == ["attempt-000003", "attempt-000004"]
    remove_leftovers(run_dir, below_attempt=5)
    assert names(run_dir)[1] == ["attempt-000003"]
    assert_equal(read_epoch(run_dir, 2), checkpoint(2))


def test_a_single_process_that_continues_a_job_removes_its_commits_and_parts(tmp_path: Path) -> None:
    publish_all(tmp_path, checkpoint(1), 2, attempt=1)
    write_part(tmp_path, *cut(checkpoint(2), 0, 2, attempt=2))
    remove_leftovers(tmp_path)
    assert names(tmp_path) == (["epoch-000001"], ["attempt-000001"])
    write_checkpoint(tmp_path, 2, document(2), {**state(2), LEDGER: checkpoint(2).arrays[LEDGER]}, keep=1)
    assert names(tmp_path) == (["epoch-000002"], [])


def test_parts_stay_while_a_commit_that_may_name_them_cannot_be_read(tmp_path: Path) -> None:
    for epochs in (1, 2):
        place = publish_all(tmp_path, checkpoint(epochs), 1, attempt=epochs)
    manifest = Path(place) / "manifest.json"
    data = manifest.read_bytes()
    manifest.write_bytes(data[:-1])
    remove_leftovers(tmp_path)
    apply_retention(tmp_path, Retention(newest=2), now_secs=0.0)
    manifest.write_bytes(data)
    found = read_newest(tmp_path, on_skip=pytest.fail)
    assert found is not None
    assert_equal(found, checkpoint(2))


def test_a_damaged_record_of_the_policy_is_one_error_and_is_written_again(tmp_path: Path) -> None:
    publish_all(tmp_path, checkpoint(1), 1, attempt=1)
    apply_retention(tmp_path, Retention(newest=1, every=2), now_secs=0.0)
    for wrong in (b"", b"{}", b'{"newest": 0, "every": 1, "younger_secs": 0}', b"[]"):
        (tmp_path / "checkpoints" / RECORD).write_bytes(wrong)
        with pytest.raises(TornCheckpoint):
            recorded_policy(open_run(tmp_path))
    apply_retention(tmp_path, Retention(newest=1, every=2), now_secs=0.0)
    assert recorded_policy(open_run(tmp_path)) == Retention(1, 2)


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """A real refusal by the system: the process may not write files beyond some bytes (EFBIG)."""
    import resource
    import signal

    from tests.trainer.checkpoints.job_states import commit_of, find_facts, names_of, write_parts
    from trainer.checkpoints.publish import publish
    from trainer.errors import CheckpointNotWritten

    publish_all(tmp_path, checkpoint(1), 2, attempt=1)
    parts = write_parts(tmp_path, checkpoint(2), 2, 2)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, before[1]))
    try:
        with pytest.raises(CheckpointNotWritten, match="disk is full: a commit") as published:
            publish(tmp_path, commit_of(checkpoint(2), 2), names_of(2), parts, find_facts)
        with pytest.raises(CheckpointNotWritten, match="disk is full: the part") as written:
            write_part(tmp_path, *cut(checkpoint(2), 0, 1, 3))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert "epoch-000002" in published.value.where
    assert "attempt-000003/host-0" in written.value.where
    assert all(caught.value.next_step.startswith("free disk space") for caught in (published, written))
    assert names(tmp_path)[0] == ["epoch-000001"]
    assert not [path for path in (tmp_path / "checkpoints").rglob("*") if path.name.startswith(".tmp")]
    publish(tmp_path, commit_of(checkpoint(2), 2), names_of(2), parts, find_facts)
    assert_equal(read_epoch(tmp_path, 2), checkpoint(2))
