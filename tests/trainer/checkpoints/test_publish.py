from __future__ import annotations

import dataclasses
import errno
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.trainer.checkpoints.job_states import (
    assert_equal,
    checkpoint,
    commit_of,
    cut,
    document,
    facts,
    find_facts,
    names_of,
    publish_all,
    state,
    write_parts,
)
from trainer.checkpoints.checkpoint import newest_intact, read_epoch, read_newest, write_checkpoint
from trainer.checkpoints.host_part import LEDGER, HostPart, Moment
from trainer.checkpoints.local_run import LocalRun
from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.parts import write_part
from trainer.checkpoints.publish import publish
from trainer.checkpoints.read import Checkpoint
from trainer.checkpoints.retention import Retention, apply_retention, newest_part_attempt
from trainer.checkpoints.saved_counts import SavedCounts
from trainer.checkpoints.stored_commit import Share
from trainer.checkpoints.taken_arrays import TakenArrays
from trainer.errors import CheckpointNotWritten, CommitConflict, PublicationInDoubt, TornCheckpoint
from trainer.options.document_field import OPEN, DocumentField
from trainer.planning.plan import PartitionPlan, cyclic_plan
from trainer.planning.plan_document import plan_fingerprint
from trainer.run.weights.saved_run import read_newest_run
from transforms.errors import Busy

if TYPE_CHECKING:
    from tests.support.gcs_server import GcsServer


@pytest.fixture(params=["folder", "bucket"])
def run_dir(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    """A run directory in a local folder, and one in a bucket over HTTP."""
    if request.param == "folder":
        return tmp_path / "run"
    server: GcsServer = request.getfixturevalue("gcs_server")
    return server.home(server.bucket(), "runs/ctr-v1")


def newest(run_dir: str | Path) -> Checkpoint:
    found = read_newest(run_dir, on_skip=pytest.fail)
    assert found is not None
    return found


@pytest.mark.parametrize("hosts", [1, 2, 3])
def test_a_commit_of_parts_is_read_as_the_checkpoint_that_was_cut(run_dir: str | Path, hosts: int) -> None:
    for epochs in (1, 2, 3):
        place = publish_all(run_dir, checkpoint(epochs), hosts, attempt=epochs)
        found = newest(run_dir)
        assert (found.path, found.name, found.epochs_done) == (place, f"epoch-{epochs:06d}", epochs)
        assert_equal(found, checkpoint(epochs))
    assert found.document["job"] == {
        "attempt": 3,
        "next_unit": 300,
        "plan": "plan-1",
        "hosts": list(names_of(hosts)),
        "carried": [[rank, 300 + 10 * rank, 303 + 10 * rank] for rank in range(hosts)],
        "release": "1.2.3",
        "epoch_steps": 0,
        "host_steps": {},
    }
    saved = read_newest_run(run_dir, on_skip=pytest.fail)
    assert saved is not None
    assert (saved.name, saved.progress.step, len(saved.progress.history)) == ("epoch-000003", 30, 3)


def test_a_commit_follows_a_checkpoint_of_one_process_and_other_numbers_of_hosts(tmp_path: Path) -> None:
    """Rescale: each restore gives the same bits, whatever wrote the commit."""
    write_checkpoint(tmp_path, 1, document(1), {**state(1), LEDGER: checkpoint(1).arrays[LEDGER]}, keep=9)
    publish_all(tmp_path, checkpoint(2), 3, attempt=7)
    publish_all(tmp_path, checkpoint(3), 2, attempt=9)
    for epochs in (1, 2, 3):
        assert_equal(read_epoch(tmp_path, epochs), checkpoint(epochs))
    write_checkpoint(tmp_path, 4, document(4), {**state(4), LEDGER: checkpoint(4).arrays[LEDGER]}, keep=9)
    assert_equal(newest(tmp_path), checkpoint(4))


@pytest.mark.parametrize("hosts", [1, 3])
def test_a_host_reads_its_rows_whatever_wrote_them(tmp_path: Path, hosts: int) -> None:
    write_checkpoint(tmp_path, 1, document(1), {**state(1), LEDGER: checkpoint(1).arrays[LEDGER]}, keep=9)
    publish_all(tmp_path, checkpoint(2), hosts, attempt=7)
    for epochs in (1, 2):
        whole = state(epochs)
        for rank in (0, 1):
            found = read_epoch(tmp_path, epochs, Share(rank, 2))
            own = whole["embedding/rows/user"] % 2 == rank
            for column in ("rows", "weights", "slots"):
                expected = whole[f"embedding/{column}/user"][own]
                assert found.arrays[f"embedding/{column}/user"].tobytes() == expected.tobytes()
            assert found.arrays["dense/weights/000"].tobytes() == whole["dense/weights/000"].tobytes()
            assert found.arrays[LEDGER].tobytes() == checkpoint(epochs).arrays[LEDGER].tobytes()


def test_the_state_of_other_ranks_is_beside_that_of_rank_0(tmp_path: Path) -> None:
    parts = {}
    for rank, host in enumerate(names_of(2)):
        part, (taken,) = cut(checkpoint(1), rank, 2, 1)
        own = {**taken.arrays, "dense/random/000": np.array([rank + 5])}
        parts[host] = write_part(tmp_path, part, [dataclasses.replace(taken, arrays=own)])
    publish(tmp_path, commit_of(checkpoint(1), 1), names_of(2), parts, find_facts)
    found = newest(tmp_path).arrays
    assert found["dense/random/000"].tolist() == [5]
    assert found["host-1/dense/random/000"].tolist() == [6]


def planned_parts(run_dir: str | Path, partition: str) -> dict[str, str]:
    """The parts of two hosts, whose rows stand as by a cyclic plan, with the fingerprint of a plan."""
    parts = {}
    for rank, host in enumerate(names_of(2)):
        part, taken = cut(checkpoint(2), rank, 2, 1)
        parts[host] = write_part(run_dir, dataclasses.replace(part, partition=partition), taken)
    return parts


def test_the_commit_of_a_job_by_a_plan_has_the_plan_and_all_rows(run_dir: str | Path) -> None:
    plan = cyclic_plan((("user", 120, 4), ("words", 120, 2)), 2)
    parts = planned_parts(run_dir, plan_fingerprint(plan))
    given = (commit_of(checkpoint(2), 1), names_of(2), parts, find_facts)
    publish(run_dir, *given, partition=plan)
    publish(run_dir, *given, partition=plan)
    found = newest(run_dir)
    assert found.partition == plan
    assert found.job is not None
    assert_equal(found, checkpoint(2))
    share = read_epoch(run_dir, 2, Share(1, 2, plan))
    assert set(share.arrays["embedding/rows/user"] % 2) == {1}


@pytest.mark.parametrize(
    ("partition", "plan", "problem"),
    [
        ("", cyclic_plan((("user", 120, 4), ("words", 120, 2)), 2), "a part must have the plan of its job"),
        ("f" * 64, cyclic_plan((("user", 120, 4), ("words", 120, 2)), 2), "a part must have the plan of its job"),
        ("f" * 64, None, "a part of a job without a plan must have no plan"),
        ("", cyclic_plan((("user", 120, 4), ("words", 120, 2)), 3), "a commit with a plan must have one host per core of the plan"),
    ],
)  # fmt: skip
def test_parts_of_another_plan_are_not_published(
    tmp_path: Path, partition: str, plan: PartitionPlan | None, problem: str
) -> None:
    parts = planned_parts(tmp_path, partition)
    with pytest.raises(TornCheckpoint, match=problem):
        publish(tmp_path, commit_of(checkpoint(2), 1), names_of(2), parts, find_facts, partition=plan)


def test_publishing_again_has_no_effect(run_dir: str | Path) -> None:
    parts = write_parts(run_dir, checkpoint(1), 2, 1)
    given = (commit_of(checkpoint(1), 1), names_of(2), parts, find_facts)
    assert publish(run_dir, *given) == publish(run_dir, *given)
    digest = newest(run_dir).digest
    publish_all(run_dir, checkpoint(2), 2, attempt=2)
    publish(run_dir, *given)  # the controller was lost while it published, and its successor had gone on
    assert read_epoch(run_dir, 1).digest == digest
    assert newest(run_dir).epochs_done == 2


def test_publishing_again_has_no_effect_after_the_commit_before_was_removed(run_dir: str | Path) -> None:
    """The controller was lost after it had published and removed what is not kept."""
    publish_all(run_dir, checkpoint(1), 2, attempt=1)
    parts = write_parts(run_dir, checkpoint(2), 2, 2)
    given = (commit_of(checkpoint(2), 2), names_of(2), parts, find_facts)
    publish(run_dir, *given)
    apply_retention(run_dir, Retention(newest=1), now_secs=0.0)
    publish(run_dir, *given)
    assert_equal(newest(run_dir), checkpoint(2))


def replace_part(run_dir: str | Path, found: Checkpoint, attempt: int) -> None:
    """Damage the part of host 0 of a commit: another part is in its place."""
    part, taken = cut(found, 0, 2, attempt)
    open_run(run_dir).remove(part.folder)
    write_part(run_dir, part, taken)


def test_equal_parts_have_equal_names(run_dir: str | Path, tmp_path: Path) -> None:
    one = write_part(run_dir, *cut(checkpoint(1), 1, 2, 1))
    assert write_part(tmp_path / "again", *cut(checkpoint(1), 1, 2, 1)) == one
    assert one.startswith("attempt-000001/host-1@")


def test_a_part_in_a_bucket_is_never_replaced(gcs_server: GcsServer) -> None:
    """A host of another controller may have the same attempt: the commit that names the first part stays whole."""
    run_dir = gcs_server.home(gcs_server.bucket(), "run")
    publish_all(run_dir, checkpoint(1), 2, attempt=1)
    with pytest.raises(CheckpointNotWritten, match="must be new in its bucket"):
        write_part(run_dir, *cut(checkpoint(2), 0, 2, 1))
    assert_equal(newest(run_dir), checkpoint(1))
    assert newest_part_attempt(run_dir) == 1


class FailingRun(LocalRun):
    """The disk fails after the rename, or before it."""

    after = True

    def create(self, folder: str, name: str, data: bytes) -> bool:
        if self.after:
            super().create(folder, name, data)
        raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("after", [True, False])
def test_a_publication_that_failed_after_its_rename_is_in_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    parts = write_parts(tmp_path, checkpoint(1), 2, 1)
    given = (commit_of(checkpoint(1), 1), names_of(2), parts, find_facts)
    with monkeypatch.context() as patched:
        patched.setattr(FailingRun, "after", after)
        patched.setattr("trainer.checkpoints.publish.open_run", lambda run: FailingRun(tmp_path / "checkpoints"))
        with pytest.raises(PublicationInDoubt if after else CheckpointNotWritten) as caught:
            publish(tmp_path, *given)
    assert "epoch-000001" in caught.value.where
    publish(tmp_path, *given)
    assert_equal(newest(tmp_path), checkpoint(1))


def test_a_controller_without_the_lease_cannot_publish(run_dir: str | Path) -> None:
    """Its attempt trained the same epoch; another controller's commit is there, with other parts, or already a newer one."""
    publish_all(run_dir, checkpoint(1), 2, attempt=5)
    with pytest.raises(CommitConflict, match="must be new") as caught:
        publish_all(run_dir, checkpoint(1), 2, attempt=4)
    assert isinstance(caught.value, Busy)
    assert "epoch-000001" in caught.value.where
    publish_all(run_dir, checkpoint(2), 2, attempt=6)
    with pytest.raises(CommitConflict):
        publish_all(run_dir, checkpoint(1), 3, attempt=3)
    assert_equal(newest(run_dir), checkpoint(2))


def test_a_new_commit_replaces_torn_ones(run_dir: str | Path) -> None:
    """The newest commits are torn: the job restored the one before them and trains their epochs again."""
    for epochs in (1, 2, 3):
        publish_all(run_dir, checkpoint(epochs), 2, attempt=epochs)
    replace_part(run_dir, checkpoint(3), attempt=2)
    replace_part(run_dir, checkpoint(2), attempt=3)
    skipped: list[str] = []
    found = read_newest(run_dir, on_skip=skipped.append)
    assert found is not None
    assert (found.epochs_done, len(skipped)) == (1, 2)
    publish_all(run_dir, checkpoint(2), 2, attempt=4)
    assert_equal(newest(run_dir), checkpoint(2))


def change_part(part: HostPart, arrays: TakenArrays, **changes: int) -> tuple[HostPart, list[TakenArrays]]:
    changed = dataclasses.replace(part, **changes)  # type: ignore[arg-type]
    return changed, [dataclasses.replace(arrays, moment=Moment(changed.attempt, changed.step))]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"step": 11}, "the same step"),
        ({"attempt": 2}, "attempt 2"),
        ({"hosts": 3}, "hosts 3"),
        ({"epoch": 1}, "epoch 1"),
        ({"next_unit": 99}, "next unit 99"),
        ({}, "rank 0"),
    ],
)
def test_a_part_of_another_state_is_not_published(tmp_path: Path, changes: dict[str, int], reason: str) -> None:
    parts = write_parts(tmp_path, checkpoint(1), 2, 1)
    part, (taken,) = cut(checkpoint(1), 1, 2, 1)
    parts["host-b"] = write_part(tmp_path, *change_part(part, taken, **changes)) if changes else parts["host-a"]
    with pytest.raises(TornCheckpoint) as caught:
        publish(tmp_path, commit_of(checkpoint(1), 1), names_of(2), parts, find_facts)
    assert reason in str(caught.value)
    assert read_newest(tmp_path, on_skip=pytest.fail) is None


def test_a_part_of_other_tables_or_without_its_ledger_is_not_published(tmp_path: Path) -> None:
    parts = write_parts(tmp_path, checkpoint(1), 2, 1)
    part, (taken,) = cut(checkpoint(1), 1, 2, 1)
    with pytest.raises(ValueError, match="array of its ledger"):
        write_part(tmp_path, part, [dataclasses.replace(taken, arrays={})])
    changed = (
        (part, dataclasses.replace(taken, parted=())),
        (dataclasses.replace(part, ledger=None), dataclasses.replace(cut(checkpoint(1), 1, 2, 1)[1][0], arrays={})),
    )
    for other, arrays in changed:
        parts["host-b"] = write_part(tmp_path, other, [arrays])
        with pytest.raises(TornCheckpoint, match="all parts"):
            publish(tmp_path, commit_of(checkpoint(1), 1), names_of(2), parts, find_facts)


def test_a_part_of_rank_0_without_all_scores_is_not_published(tmp_path: Path) -> None:
    made = checkpoint(2)
    part, taken = cut(made, 0, 1, 1)
    for changed in (replace(part, history=part.history[1:]), replace(part, epochs_done=3)):
        parts = {names_of(1)[0]: write_part(tmp_path, changed, taken)}
        with pytest.raises(TornCheckpoint, match="scores of all finished epochs"):
            publish(tmp_path, commit_of(made, 1), names_of(1), parts, find_facts)
        _, taken = cut(made, 0, 1, 1)


@pytest.mark.parametrize("damage", ["manifest", "absent", "short", "no manifest"])
def test_a_damaged_part_is_not_published(tmp_path: Path, damage: str) -> None:
    parts = write_parts(tmp_path, checkpoint(1), 2, 1)
    folder = tmp_path / "checkpoints" / "parts" / "attempt-000001" / "host-1"
    manifest, array = folder / "manifest.json", folder / "array-0001.npy"
    if damage == "manifest":
        manifest.write_bytes(manifest.read_bytes().replace(b'"step": 10', b'"step": 11'))
    elif damage == "short":
        array.write_bytes(array.read_bytes()[:-1])
    else:
        (array if damage == "absent" else manifest).unlink()
    with pytest.raises(CheckpointNotWritten, match="a part is damaged") as caught:
        publish(tmp_path, commit_of(checkpoint(1), 1), names_of(2), parts, find_facts)
    assert (manifest if "manifest" in damage else array).name in caught.value.where
    assert caught.value.next_step


@pytest.mark.medium
def test_every_damaged_byte_of_a_commit_is_noticed(tmp_path: Path) -> None:
    publish_all(tmp_path, checkpoint(1), 2, 1)
    publish_all(tmp_path, checkpoint(2), 2, 2)
    paths = [path for path in (tmp_path / "checkpoints").rglob("*") if path.is_file() and "attempt-000001" not in str(path)
             and "epoch-000001" not in str(path)]  # fmt: skip
    draw = np.random.default_rng(5)
    assert len(paths) > 20
    for path in paths:
        data = path.read_bytes()
        for at in draw.integers(0, len(data), 4):
            path.write_bytes(data[:at] + bytes([data[at] ^ (1 << int(draw.integers(8)))]) + data[at + 1 :])
            skipped: list[str] = []
            found = read_newest(tmp_path, on_skip=skipped.append)
            assert found is not None
            assert found.epochs_done == 1
            assert path.name in skipped[0]
        path.write_bytes(data)
    assert newest(tmp_path).epochs_done == 2


def test_two_parts_that_change_places_are_noticed(tmp_path: Path) -> None:
    publish_all(tmp_path, checkpoint(1), 2, 1)
    folder = tmp_path / "checkpoints" / "parts" / "attempt-000001"
    (folder / "host-0").rename(folder / "other")
    (folder / "host-1").rename(folder / "host-0")
    (folder / "other").rename(folder / "host-1")
    with pytest.raises(TornCheckpoint, match="that which its host has written"):
        read_epoch(tmp_path, 1)


def account(run_dir: str | Path, on_skip: Callable[[str], None] = pytest.fail) -> Checkpoint | None:
    """The newest intact commit without its weights."""
    return newest_intact(run_dir, lambda found: found, on_skip=on_skip, weights=False)


def test_the_newest_commit_is_verified_without_its_weights_in_memory(run_dir: str | Path) -> None:
    for epochs in (1, 2):
        publish_all(run_dir, checkpoint(epochs), 2, attempt=epochs)
    found, whole = account(run_dir), newest(run_dir)
    assert found is not None
    assert (found.document, found.digest, found.epochs_done) == (whole.document, whole.digest, 2)
    assert {"ledger"} <= found.arrays.keys() <= {"ledger", "labels"}
    assert found.arrays["ledger"].tobytes() == whole.arrays["ledger"].tobytes()
    replace_part(run_dir, checkpoint(1), attempt=2)
    skipped: list[str] = []
    found = account(run_dir, skipped.append)
    assert found is not None
    assert (found.epochs_done, len(skipped)) == (1, 1)


def test_a_row_in_two_parts_is_torn(tmp_path: Path) -> None:
    parts = {}
    for rank, host in enumerate(names_of(2)):
        part, _ = cut(checkpoint(1), rank, 2, 1)
        _, (whole,) = cut(checkpoint(1), 0, 1, 1)
        _, (own,) = cut(checkpoint(1), rank, 2, 1)
        parts[host] = write_part(tmp_path, part, [dataclasses.replace(own, parted=whole.parted)])
    publish(tmp_path, commit_of(checkpoint(1), 1), names_of(2), parts, find_facts)
    with pytest.raises(TornCheckpoint, match="must be in the part of one host"):
        read_epoch(tmp_path, 1)
    with pytest.raises(TornCheckpoint, match="must have an intact checkpoint"):
        account(tmp_path, lambda reason: None)


def test_a_first_epoch_that_was_killed_begins_again(tmp_path: Path) -> None:
    write_parts(tmp_path, checkpoint(1), 2, 1)
    assert read_newest(tmp_path, on_skip=pytest.fail) is None


def test_equal_commits_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("one", "other"):
        publish_all(tmp_path / name, checkpoint(1), 2, 1)
    one, other = (
        {
            path.relative_to(tmp_path / name): path.read_bytes()
            for path in (tmp_path / name).rglob("*")
            if path.is_file()
        }
        for name in ("one", "other")
    )
    assert one == other


def test_facts_round_trip() -> None:
    found = facts()
    document = json.loads(json.dumps(OPEN.document(found)))
    assert OPEN.read(type(found), DocumentField(document, "facts")) == found


def test_ledgers_of_hosts_that_trained_the_same_events_are_added() -> None:
    from trainer.checkpoints.saved_counts import summed_counts

    one = SavedCounts.of([("b#0", np.array([1, 0, 2], np.uint8), 5)])
    other = SavedCounts.of([("b#0", np.array([1, 2, 0], np.uint8), 2**64 - 2), ("a#0", np.ones(2, np.uint8), None)])
    found = summed_counts([one, other], str, "here")
    assert [(item.key, item.count, item.labels) for item in found.fragments] == [("a#0", 1, None), ("b#0", 2, 3)]
    with pytest.raises(TornCheckpoint, match="the same events"):
        summed_counts([one, SavedCounts.of([("b#0", np.ones(4, np.uint8), 0)])], str, "here")
    with pytest.raises(TornCheckpoint, match="at most 255"):
        summed_counts([one, SavedCounts.of([("b#0", np.full(3, 254, np.uint8), 0)])], str, "here")


def test_a_run_that_is_copied_elsewhere_is_the_same_run(tmp_path: Path) -> None:
    publish_all(tmp_path / "one", checkpoint(1), 2, 1)
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    assert_equal(newest(tmp_path / "copy"), checkpoint(1))
