"""The statistics of a job's hosts: those of a commit's parts together, none of an attempt without a commit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainer.checkpoints.job_states import checkpoint, commit_of, cut, find_facts, identity, names_of
from tests.trainer.planning.test_feature_statistics import statistics
from trainer.checkpoints.parts import write_part
from trainer.checkpoints.publish import publish
from trainer.errors import TornCheckpoint
from trainer.run.progress.part_statistics import part_statistics, read_commit_statistics, stored_commits
from trainer.run.progress.run_statistics import STATISTICS, run_key

INPUT = identity().inputs[0]


def written(run_dir: Path, attempt: int, events: tuple[float, ...]) -> dict[str, str]:
    """The parts of an attempt whose hosts have sampled so many events."""
    found = checkpoint(1)
    return {
        name: write_part(
            run_dir,
            *cut(found, rank, len(events), attempt),
            {STATISTICS: part_statistics(identity(), {INPUT["name"]: statistics(sampled)})} if sampled else {},
        )
        for rank, (name, sampled) in enumerate(zip(names_of(len(events)), events, strict=True))
    }


def test_the_samples_of_a_commit_are_pooled(tmp_path):
    written(tmp_path, 1, (500.0, 500.0))  # an attempt that was given up
    parts = written(tmp_path, 2, (1000.0, 3000.0, 0.0))
    assert read_commit_statistics(str(tmp_path), 1) is None
    assert stored_commits(str(tmp_path)) == ()
    publish(tmp_path, commit_of(checkpoint(1), 2), names_of(3), parts, find_facts)
    found = read_commit_statistics(str(tmp_path), 1)
    assert found.run == run_key(identity())
    assert (found.commit, found.attempt, found.step) == (1, 2, checkpoint(1).document["step"])
    assert stored_commits(str(tmp_path)) == (1,)
    ((fingerprint, one),) = found.features.items()
    assert (fingerprint, one.name) == (INPUT["fingerprint"], INPUT["name"])
    assert (one.statistics.events, one.statistics.batches, one.statistics.version) == (4000.0, 40.0, 1)


def test_a_damaged_sample_is_refused(tmp_path):
    publish(tmp_path, commit_of(checkpoint(1), 1), names_of(1), written(tmp_path, 1, (10.0,)), find_facts)
    (place,) = tmp_path.rglob(STATISTICS)
    place.write_bytes(place.read_bytes()[:-9])
    with pytest.raises(TornCheckpoint):
        read_commit_statistics(str(tmp_path), 1)


def test_hosts_without_a_sample_have_no_file(tmp_path):
    assert part_statistics(identity(), {}) is None
    publish(tmp_path, commit_of(checkpoint(1), 1), names_of(1), written(tmp_path, 1, (0.0,)), find_facts)
    assert read_commit_statistics(str(tmp_path), 1) is None
