"""Distinguish an unreadable file from a machine that cannot read. Pure.

A lost file fails an attempt of its own components on any machine. A machine without a mount or a permission would fail an
attempt of every task that it leases, although others could compute them. Therefore a worker that fails to read two files,
with no success between them, is at fault. A file with earlier failures on other machines does not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pipelines.fragments.work import FragmentResult
from transforms.errors import StorageError
from warehouse.queue.failures import Failure
from warehouse.queue.tasks import LeasedTask

_EVIDENCE_FILES = 2


@dataclass(frozen=True, slots=True)
class ReadFailures:
    """The ``paths`` of the files that a worker could not read since its last success."""

    paths: frozenset[str] = frozenset()

    def add(self, paths: Iterable[str]) -> ReadFailures:
        """The failures with more paths."""
        return ReadFailures(self.paths | frozenset(paths))

    @property
    def is_host_fault(self) -> bool:
        """Whether the machine is at fault."""
        return len(self.paths) >= _EVIDENCE_FILES


def read_failure(result: FragmentResult) -> Failure | None:
    """The failure of a fragment of which nothing could be read; None for any other fragment."""
    failures = [outcome.failure for outcome in result.outcomes]
    unread = [failure for failure in failures if failure is not None and failure.kind == "unreadable"]
    return unread[0] if unread and len(unread) == len(failures) else None


def has_read(result: FragmentResult) -> bool:
    """Whether the fragment's raw data was read."""
    return any(outcome.failure is None or not outcome.failure.is_untried for outcome in result.outcomes)


def counts_as_host_fault(tasks: Iterable[LeasedTask]) -> bool:
    """Whether an unreadable fragment is evidence against the machine: it has no earlier failed attempt."""
    return any(task.attempt - task.losses == 1 for task in tasks)


def as_changed_data(result: FragmentResult) -> FragmentResult:
    """The result of a fragment that could not be read because its table has changed since."""
    outcomes = tuple(
        replace(outcome, failure=replace(outcome.failure, kind="data"))
        if outcome.failure is not None and outcome.failure.kind == "unreadable"
        else outcome
        for outcome in result.outcomes
    )
    return replace(result, outcomes=outcomes)


def host_fault_error(path: str, failure: Failure | None) -> StorageError:
    """The error of a worker whose machine cannot read: one of the files, and the reason."""
    return StorageError("raw files cannot be read on this machine", where=path,
                        value=failure.error if failure else None, next_step="mount the storage or fix its permissions, then start "
                        "the worker again; its tasks were released and not attempted")  # fmt: skip
