"""The statistics of features that a job's hosts have sampled, in a file of each host's part of a commit.

A commit names its parts, so that the sample of an attempt that was given up counts nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainer.checkpoints.commit_manifest import CommitManifest, JobPosition
from trainer.checkpoints.host_part import PartName
from trainer.checkpoints.manifest import MANIFEST, canonical_json, parse_json
from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.run_files import RunFiles, commit_name, epochs_of, newest_first
from trainer.errors import TornCheckpoint
from trainer.options.document_field import OPEN, DocumentField
from trainer.planning.feature_statistics import FeatureStatistics, pooled
from trainer.run.progress.identity import RunIdentity
from trainer.run.progress.run_statistics import STATISTICS, NamedStatistics, run_key
from transforms.derived_documents import document_of


@dataclass(frozen=True, slots=True)
class PartStatistics:
    """What a host has sampled for a commit; ``run``: :func:`~trainer.run.progress.run_statistics.run_key`."""

    run: str
    features: Mapping[str, NamedStatistics]


@dataclass(frozen=True, slots=True)
class CommitStatistics:
    """What all hosts have sampled for a commit.

    Attributes:
        commit: its number.
        attempt: that trained it.
        step: the optimizer steps of the run up to the commit.
        run: :func:`~trainer.run.progress.run_statistics.run_key`.
        features: the statistics by the fingerprint of the feature's component.
    """

    commit: int
    attempt: int
    step: int
    run: str
    features: Mapping[str, NamedStatistics]


def part_statistics(identity: RunIdentity, sampled: Mapping[str, FeatureStatistics]) -> bytes | None:
    """The file of a host's sample, which is by feature; None without one."""
    if not sampled:
        return None
    fingerprints = {item["name"]: item["fingerprint"] for item in identity.inputs}
    named = {fingerprints[name]: NamedStatistics(name, one) for name, one in sampled.items()}
    return canonical_json(document_of(PartStatistics(run_key(identity), named)))


def stored_commits(run_dir: str) -> tuple[int, ...]:
    """The numbers of the commits of a run that are not removed yet, in order. Raises :class:`~transforms.errors.StorageError`."""
    return tuple(reversed([epochs_of(name) for name in newest_first(open_run(run_dir))]))


def read_commit_statistics(run_dir: str, commit: int) -> CommitStatistics | None:
    """What the hosts of a commit have sampled; None if it is gone, has no parts or none of them has a sample.

    Raises :class:`TornCheckpoint` for a damaged file.
    """
    files = open_run(run_dir)
    name = commit_name(commit)
    if name not in files.names():
        return None
    where = files.place(f"{name}/{MANIFEST}")
    if "parts" not in DocumentField(parse_json(files.read(f"{name}/{MANIFEST}"), where), where).members():
        return None  # of a single process
    manifest = CommitManifest.from_bytes(files.read(f"{name}/{MANIFEST}"), where)
    parts = [found for one in manifest.parts if (found := _read_part(files, one)) is not None]
    if len({one.run for one in parts}) > 1:
        raise TornCheckpoint("all statistics of a commit must belong to one run", where=where, value=len(parts))
    if not parts:
        return None
    fingerprints = {key: one.name for part in parts for key, one in part.features.items()}
    features = {
        key: NamedStatistics(name, pooled([part.features[key].statistics for part in parts if key in part.features]))
        for key, name in sorted(fingerprints.items())
    }
    document = DocumentField(manifest.document, where)
    position = JobPosition.read(document)
    attempt = 0 if position is None else position.attempt
    return CommitStatistics(commit, attempt, document.at("step").count(), parts[0].run, features)


def _read_part(files: RunFiles, part: PartName) -> PartStatistics | None:
    path = f"{part.folder}/{STATISTICS}"
    if STATISTICS not in files.sizes(part.folder):
        return None
    field = DocumentField(parse_json(files.read(path), files.place(path)), STATISTICS)
    return OPEN.read(PartStatistics, field)
