"""The errors of ``pipelines``, as leaves of :mod:`transforms.errors`.

InputError ── LogSchemaError, UnknownFormat, UnclearEventTime, NoLogFiles, OutputTaken, JobRefused
DataError  ── TruncatedLog, TooManyRejects, MemoizeFailed, RunnerFailed, JobFailed
StorageError ── ChildrenLost
Busy ── JoinJobFailed
"""

from __future__ import annotations

from transforms.errors import Busy, DataError, InputError, StorageError


class LogSchemaError(InputError):
    """A schema file is missing, is not JSON, or describes a log that cannot be read."""

    def __init__(
        self,
        what: str,
        *,
        where: str = "",
        value: object = None,
        allowed: str = "",
        next_step: str = "correct the schema file; docs/importing.md lists its entries",
    ) -> None:
        super().__init__(what, where=where, value=value, allowed=allowed, next_step=next_step)


class UnknownFormat(InputError):
    """A log format, or a log of a format, that cannot be read."""


class UnclearEventTime(InputError):
    """A log without a column that is clearly its event time."""


class NoLogFiles(InputError):
    """A path or pattern that matches no log file."""


class OutputTaken(InputError):
    """The output folder has rows of other files or options."""


class JobRefused(InputError):
    """A service rejected a job; nothing ran."""


class TruncatedLog(DataError):
    """A log file is truncated, or its compression is damaged."""


class TooManyRejects(DataError):
    """More rows were rejected than the caller allows; nothing was published."""


class MemoizeFailed(DataError):
    """A memoize job ended without a result for some of its fragments."""


class RunnerFailed(DataError):
    """A job failed on a remote runner. The finished work of its workers is kept."""


class JobFailed(DataError):
    """A job that a service accepted failed. Its finished work is kept."""


class ChildrenLost(StorageError):
    """Child processes cannot be started on this machine."""


class JoinJobFailed(Busy):
    """A join job failed for a reason that is none of its data; its joined columns are still to be computed."""
