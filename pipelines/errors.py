"""What can go wrong between a raw log and a memo, as leaves of :mod:`transforms.errors`.

InputError ── LogSchemaError, UnknownFormat, NoLogFiles, OutputTaken, JobRefused
DataError  ── TruncatedLog, TooManyRejects, MemoizeFailed, RunnerFailed, JobFailed
StorageError ── ChildrenLost
"""

from __future__ import annotations

from transforms.errors import DataError, InputError, StorageError


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
    """A log format, or a log in this format, that nothing here reads."""


class NoLogFiles(InputError):
    """A path or pattern that matches no log file."""


class OutputTaken(InputError):
    """The output folder already holds rows that were prepared from something else."""


class JobRefused(InputError):
    """A service did not take a job: nothing ran."""


class TruncatedLog(DataError):
    """A log file ends in the middle, or its compression is damaged."""


class TooManyRejects(DataError):
    """More rows were rejected than the caller allows; nothing was published."""


class MemoizeFailed(DataError):
    """A memoize job ended without a result for some of its fragments."""


class RunnerFailed(DataError):
    """A runner on other machines, or its server, gave a job up. What its workers had finished is kept."""


class JobFailed(DataError):
    """A job that a service had taken ended without success. What it finished before is kept."""


class ChildrenLost(StorageError):
    """Processes that compute fragments cannot be started here."""
