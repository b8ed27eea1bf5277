"""Which commits of a run are kept, and the removal of the others, and of parts and plans that no kept commit names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from trainer.checkpoints.commit_manifest import COMMIT_FORMATS, CommitManifest, JobPosition
from trainer.checkpoints.held_commits import held_commits
from trainer.checkpoints.host_part import PARTS, attempt_folder
from trainer.checkpoints.manifest import MANIFEST, Manifest, canonical_json, parse_json, verified_document
from trainer.checkpoints.not_written import translated_write_errors
from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.part_manifest import part_shards
from trainer.checkpoints.read import read_part_manifest
from trainer.checkpoints.run_files import PLANS, RunFiles, commit_name, epochs_of, newest_first
from trainer.errors import OtherFormat, TornCheckpoint
from trainer.options.document_field import OPEN, DocumentField
from transforms.errors import InputError
from warehouse.storage.locations import is_gcs

#: The file of the policy of a run.
RECORD = ".retention.json"

_ATTEMPT = re.compile("attempt-([0-9]{6,18})")


@dataclass(frozen=True, slots=True)
class Retention:
    """A retention policy: a commit stays if any rule keeps it.

    Attributes:
        newest: so many of the newest.
        every: those whose number of epochs is a multiple of it; 0: no such rule.
        younger_secs: those that are younger; 0: no such rule.
    """

    newest: int = 2
    every: int = 0
    younger_secs: float = 0.0

    def __post_init__(self) -> None:
        if self.newest < 1 or self.every < 0 or not self.younger_secs >= 0:
            raise InputError(
                "a retention policy must keep at least the newest commit, with rules of at least 0",
                value=(self.newest, self.every, self.younger_secs),
            )


def kept_commits(policy: Retention, commits: Mapping[int, float], now_secs: float) -> dict[int, str]:
    """The kept commits by their epochs, newest first, with the rule that keeps each; ``commits``: when each was written. Pure."""
    newest = sorted(commits, reverse=True)
    rules = {epochs: _rule(policy, place, epochs, now_secs - commits[epochs]) for place, epochs in enumerate(newest)}
    return {epochs: rule for epochs, rule in rules.items() if rule}


def _rule(policy: Retention, place: int, epochs: int, age_secs: float) -> str:
    if place < policy.newest:
        return f"newest {policy.newest}"
    if policy.every and epochs % policy.every == 0:
        return f"every {policy.every}"
    return (
        f"younger than {policy.younger_secs / 3600:g} h"
        if policy.younger_secs and age_secs < policy.younger_secs
        else ""
    )


def apply_retention(
    run_dir: str | Path, policy: Retention, *, now_secs: float, holds: Path | None = None
) -> tuple[str, ...]:
    """Remove the commits that no rule keeps, and parts that no kept commit names; returns the removed places.

    Commits that a process holds (:mod:`trainer.checkpoints.held_commits`, in the folder ``holds``; None: a local run directory) are
    kept until a later call. Parts of attempts above every published one are kept: they may be being written. A plan is removed with the last commit that
    names it. Safe against a crash at any instruction: commits are removed before their parts, and what remains is removed next
    time. Raises :class:`CheckpointNotWritten`.
    """
    files = open_run(run_dir)
    with translated_write_errors(files.place(""), "the removal of old checkpoints"):
        _record(files, policy)
        written = written_commits(files)
        folder = Path(run_dir) if holds is None and not is_gcs(str(run_dir)) else holds
        held = frozenset() if folder is None else held_commits(folder) & written.keys()
        kept = kept_commits(policy, written, now_secs).keys() | held
        removed = [commit_name(epochs) for epochs in sorted(written) if epochs not in kept]
        attempts = _attempts(files)
        published = _named(files, sorted(written)) if attempts else None
        for name in removed:
            files.remove(name)
        named = _named(files, sorted(kept)) if attempts else None
        if named is not None:
            before = published or named
            below = max(named.attempts | before.attempts, default=-1) + 1
            removed += _remove_parts(files, attempts, named.attempts, below)
            removed += _remove_plans(files, before.plans - named.plans)
        if attempts:
            files.remove_unfinished(PARTS)
    return tuple(map(files.place, removed))


def remove_leftovers(run_dir: str | Path, *, below_attempt: int | None = None) -> None:
    """Remove what killed processes have left: unfinished checkpoints, and parts that no commit names. The caller holds the run's lock.

    ``below_attempt``: only parts of attempts below this number, those that were given up; None: of all attempts.
    """
    files = open_run(run_dir)
    files.remove_unfinished("")
    attempts = _attempts(files)
    if not attempts:
        return
    named = _named(files, _epochs(files))
    if named is not None:
        _remove_parts(files, attempts, named.attempts, below_attempt)
    for attempt, folder in attempts.items():
        if below_attempt is None or attempt < below_attempt:
            files.remove_unfinished(folder)
    files.remove_unfinished(PARTS)


def newest_part_attempt(run_dir: str | Path) -> int:
    """The highest attempt with parts in the run, published or not; 0 without one."""
    return max(_attempts(open_run(run_dir)), default=0)


def written_commits(files: RunFiles) -> dict[int, float]:
    """When each commit was written, in epoch seconds, by its epochs."""
    return {epochs: files.written_secs(f"{commit_name(epochs)}/{MANIFEST}") for epochs in _epochs(files)}


def recorded_policy(files: RunFiles) -> Retention | None:
    """The policy of a run, if it has other rules than the newest. Raises :class:`TornCheckpoint` for a damaged record."""
    if RECORD not in files.sizes(""):
        return None
    field = DocumentField(parse_json(files.read(RECORD), files.place(RECORD)), files.place(RECORD))
    return OPEN.read(Retention, field)


def _record(files: RunFiles, policy: Retention) -> None:
    """Record a policy for ``headrace ckpt ls``, if it has other rules than the newest."""
    try:
        recorded = recorded_policy(files)
    except TornCheckpoint:
        recorded = Retention(policy.newest, policy.every + 1)
    if policy == Retention(policy.newest):
        if recorded is not None:
            files.remove(RECORD)
    elif policy != recorded:
        files.put(RECORD, canonical_json(asdict(policy)))


def _epochs(files: RunFiles) -> list[int]:
    return sorted(map(epochs_of, newest_first(files)))


@dataclass(frozen=True, slots=True)
class _Named:
    """What commits name.

    Attributes:
        attempts: those whose parts they name.
        plans: the names of plans.
    """

    attempts: frozenset[int]
    plans: frozenset[str]


def _named(files: RunFiles, commits: Sequence[int]) -> _Named | None:
    """What the commits name; None if a commit of parts cannot be read, so its parts are unknown."""
    attempts: set[int] = set()
    plans: set[str] = set()
    for epochs in commits:
        place = f"{commit_name(epochs)}/{MANIFEST}"
        try:
            found = verified_document(files.read(place), files.place(place))
            if found.members().get("format", found).value in COMMIT_FORMATS:
                commit = CommitManifest.read(found, found.place)
                attempts.update(part.attempt for part in commit.parts)
                first = commit.parts[0]
                shards = part_shards([(first, read_part_manifest(files, first))], found.place)
                attempts.update(one.attempt for one in (*shards.names, *shards.bases))
                job = JobPosition.read(DocumentField(dict(commit.document), found.place))
                plans.update(() if job is None else (job.plan,))
            else:
                shards = Manifest.read(found).shards
                attempts.update(one.attempt for one in (*shards.names, *shards.bases))
        except (TornCheckpoint, OtherFormat):
            return None
    return _Named(frozenset(attempts), frozenset(plans))


def named_attempts(files: RunFiles, commits: Sequence[int]) -> frozenset[int] | None:
    """The attempts of which commits name parts or shards; None if one cannot be read."""
    named = _named(files, commits)
    return None if named is None else named.attempts


def _remove_parts(
    files: RunFiles, attempts: Mapping[int, str], named: frozenset[int], below_attempt: int | None
) -> list[str]:
    """Remove the parts of attempts that are not named, below a number."""
    removed = [
        folder
        for attempt, folder in attempts.items()
        if attempt not in named and (below_attempt is None or attempt < below_attempt)
    ]
    for folder in removed:
        files.remove(folder)
    return removed


def _remove_plans(files: RunFiles, plans: frozenset[str]) -> list[str]:
    """Remove the stored ones of these plans."""
    removed = [f"{PLANS}/{name}" for name in files.folders(PLANS) if name in plans] if plans else []
    for folder in removed:
        files.remove(folder)
    return removed


def _attempts(files: RunFiles) -> dict[int, str]:
    """The folders of the parts of attempts."""
    found = (_ATTEMPT.fullmatch(name) for name in files.folders(PARTS))
    numbers = (int(matched[1]) for matched in found if matched)
    return {number: attempt_folder(number) for number in numbers}
