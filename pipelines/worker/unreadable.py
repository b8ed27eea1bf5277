"""Raw data that could not be read: is it the file, or is it this machine? As pure functions.

One file that no disk gives back any more costs its own components an attempt, whoever meets it. A machine that lacks a
mount, or the right to read, would cost every task that it can lease one, while others could compute them; so it is told
apart: who could not read two files, and none between them, has the fault itself. A file that others failed at before is no
evidence.
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
    """``paths``: the files that a worker could not read since it last read one."""

    paths: frozenset[str] = frozenset()

    def add(self, paths: Iterable[str]) -> ReadFailures:
        """These could not be read either."""
        return ReadFailures(self.paths | frozenset(paths))

    @property
    def is_host_fault(self) -> bool:
        """Whether it is the machine that cannot read."""
        return len(self.paths) >= _EVIDENCE_FILES


def read_failure(result: FragmentResult) -> Failure | None:
    """Why nothing of a fragment could be read; None if anything of it was, or another thing kept it from being computed."""
    failures = [outcome.failure for outcome in result.outcomes]
    unread = [failure for failure in failures if failure is not None and failure.kind == "unreadable"]
    return unread[0] if unread and len(unread) == len(failures) else None


def has_read(result: FragmentResult) -> bool:
    """Whether the fragment's raw data was read, whatever became of it."""
    return any(outcome.failure is None or not outcome.failure.is_untried for outcome in result.outcomes)


def counts_as_host_fault(tasks: Iterable[LeasedTask]) -> bool:
    """Whether a fragment that cannot be read says anything of the machine: nobody has failed at it before."""
    return any(task.attempt - task.losses == 1 for task in tasks)


def as_changed_data(result: FragmentResult) -> FragmentResult:
    """The result of a fragment that could not be read because its table has other data by now."""
    outcomes = tuple(
        replace(outcome, failure=replace(outcome.failure, kind="data"))
        if outcome.failure is not None and outcome.failure.kind == "unreadable"
        else outcome
        for outcome in result.outcomes
    )
    return replace(result, outcomes=outcomes)


def host_fault_error(path: str, failure: Failure | None) -> StorageError:
    """What to tell who started a worker whose machine cannot read: one of the files, and why."""
    return StorageError("this machine can read none of the raw data that it was given to compute", where=path,
                        value=failure.error if failure else None, next_step="mount the storage here or mend its permissions, then start "
                        "the worker again; its tasks were given back untried")  # fmt: skip
