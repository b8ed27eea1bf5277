"""Classify errors into permanent, data that is not ready, and transient, by a table. Pure.

A *permanent* error would repeat: the job is held until a person releases it. *Data not ready* holds the job until the data is
there. A *transient* error restarts the job from its last commit, with backoff; :data:`trainer.scheduling.job.JobSettings` limits
the restarts without a commit, after which the job is held. An unknown error is transient: this is safe, since a restart
repeats and loses nothing, and the limit ends the restarts.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

#: The longest message and type name that a document keeps, in characters.
_MOST_MESSAGE = 2000
_MOST_NAME = 200
_MOST_TYPES = 40
#: How the lines of an error's message begin after the first; see :class:`~transforms.errors.HeadraceError`.
_FIELDS = ("where: ", "value: ", "allowed: ", "next: ")


class ErrorClass(StrEnum):
    """What a job does after an error."""

    PERMANENT = "permanent"
    DATA_NOT_READY = "data_not_ready"
    TRANSIENT = "transient"


@dataclass(frozen=True, slots=True)
class ErrorDocument:
    """An exception as it travels between processes.

    Attributes:
        types: names of the exception's classes, most derived first.
        message: its text.
        errno: the number of the system's error, of the exception or its causes; None without one.
        status: the status of an HTTP answer, likewise.
    """

    types: tuple[str, ...]
    message: str = ""
    errno: int | None = None
    status: int | None = None

    @property
    def summary(self) -> str:
        """The most derived type and the message's first line."""
        first = (self.message.splitlines() or [""])[0]
        return f"{self.types[0] if self.types else 'error'}: {first}" if first else (self.types or ("error",))[0]

    @property
    def reason(self) -> str:
        """The summary, and where, the value, what is allowed and the next step, for an error of Headrace, which has a line for each."""
        others = [line.strip() for line in self.message.splitlines()[1:]]
        fields = [" ".join(line.split(maxsplit=1)) for line in others if line.startswith(_FIELDS)]
        return "; ".join([self.summary, *fields])


@dataclass(frozen=True, slots=True)
class HoldRule:
    """One row of the table. An error matches if all given conditions hold.

    Attributes:
        outcome: the class of the error.
        why: the reason, for the hold and the documentation.
        types: names of classes, one of which the exception has.
        errnos: numbers of system errors.
        statuses: HTTP statuses.
        pattern: a regular expression that is found in the message.
    """

    outcome: ErrorClass
    why: str
    types: frozenset[str] = frozenset()
    errnos: frozenset[int] = frozenset()
    statuses: frozenset[int] = frozenset()
    pattern: str = ""

    def matches(self, error: ErrorDocument, name: str) -> bool:
        """Whether the rule applies to ``error``, considering its class ``name`` ("" for rules without types)."""
        return (
            (name in self.types if self.types else not name)
            and (not self.errnos or error.errno in self.errnos)
            and (not self.statuses or error.status in self.statuses)
            and (not self.pattern or re.search(self.pattern, error.message, re.IGNORECASE) is not None)
        )


def _rule(
    outcome: ErrorClass, why: str, *types: str, errnos: tuple[int, ...] = (), statuses: tuple[int, ...] = (), pattern: str = ""
) -> HoldRule:  # fmt: skip
    return HoldRule(outcome, why, frozenset(types), frozenset(errnos), frozenset(statuses), pattern)


_P, _D, _T = ErrorClass.PERMANENT, ErrorClass.DATA_NOT_READY, ErrorClass.TRANSIENT

#: Rules that look at the cause rather than at the class; the first match decides, before :data:`TYPE_RULES`.
CAUSE_RULES: tuple[HoldRule, ...] = (
    _rule(_P, "the credentials do not allow it", statuses=(401, 403)),
    _rule(_T, "the service is overloaded or unavailable", statuses=(408, 425, 429, *range(500, 600))),
    _rule(_P, "the machine's memory is exhausted", errnos=(errno.ENOMEM,)),
    _rule(_P, "the file's permissions do not allow it", errnos=(errno.EACCES, errno.EPERM, errno.EROFS)),
    _rule(_T, "the disk is full", errnos=(errno.ENOSPC, errno.EDQUOT, errno.EFBIG)),
    _rule(_T, "the network or the device failed", errnos=(
        errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.ETIMEDOUT, errno.EHOSTUNREACH,
        errno.ENETUNREACH, errno.EIO, errno.ESTALE, errno.EINTR, errno.EAGAIN, errno.EMFILE, errno.ENFILE,
    )),
)  # fmt: skip

#: Rules by class. The most derived class of an exception that a rule names decides.
TYPE_RULES: tuple[HoldRule, ...] = (
    _rule(_D, "the data to train is not there yet", "DataNotReady"),
    _rule(_P, "another controller trains the same run", "CommitConflict"),
    _rule(_P, "training diverged", "NonFiniteLoss", "FloatingPointError"),
    _rule(_P, "the memory folder of a parameter server is full", "MemoryFull"),
    _rule(_P, "memory is exhausted", "MemoryError", "ArrowMemoryError", "ResourceExhaustedError", "OutOfMemoryError"),
    _rule(_P, "the accelerator's memory is exhausted", "InternalError", "UnknownError", "RuntimeError", "XlaRuntimeError",
          pattern=r"out of memory|RESOURCE_EXHAUSTED|\bOOM\b"),
    _rule(_P, "the model does not compile", "InternalError", "UnknownError", "RuntimeError", "XlaRuntimeError",
          pattern=r"compil(e|ation)"),
    _rule(_P, "the model cannot be traced or built", "OperatorNotAllowedInGraphError", "InaccessibleTensorError",
          "InvalidArgumentError", "UnimplementedError", "FailedPreconditionError", "StagingError", "AutoGraphError"),
    _rule(_P, "the program is wrong", "TypeError", "ValueError", "NameError", "AttributeError", "LookupError", "SyntaxError",
          "ImportError", "AssertionError", "NotImplementedError", "RecursionError", "ArithmeticError"),
    _rule(_T, "a memo is damaged; it is computed on read from now on", "MemoDamaged"),
    _rule(_T, "a process sent something else than what it was asked for", "BadAnswer"),
    _rule(_T, "a file is missing or its storage cannot be reached", "MissingFile", "FileNotFoundError"),
    _rule(_T, "another process holds a resource", "Busy"),
    _rule(_T, "the storage failed", "StorageError"),
    _rule(_P, "the configuration, the model or the input is wrong", "InputError"),
    _rule(_P, "the name is not in the catalog", "NotFound"),
    _rule(_P, "the data is bad or damaged", "DataError"),
    _rule(_P, "permissions do not allow it", "PermissionError", "PermissionDeniedError", "UnauthenticatedError",
          "FlightUnauthenticatedError", "FlightUnauthorizedError", "Forbidden", "Unauthorized"),
    _rule(_T, "the connection or a peer failed", "DamagedFrame", "ConnectionError", "TimeoutError", "EOFError", "UnavailableError",
          "AbortedError", "CancelledError", "DeadlineExceededError", "FlightUnavailableError", "FlightTimedOutError",
          "FlightCancelledError", "FlightInternalError", "FlightServerError", "IncompleteRead", "gaierror"),
    _rule(_T, "the operating system reported an error", "OSError"),
)  # fmt: skip

#: For an error that no rule names.
DEFAULT_RULE = _rule(_T, "the error is unknown: it is retried a limited number of times")


def rule_of(error: ErrorDocument) -> HoldRule:
    """The rule that decides on an error: by cause, else by its most derived named class, else the default."""
    for rule in CAUSE_RULES:
        if rule.matches(error, ""):
            return rule
    for name in error.types:
        for rule in TYPE_RULES:
            if rule.matches(error, name):
                return rule
    return DEFAULT_RULE


def classify(error: ErrorDocument) -> ErrorClass:
    """The class of an error."""
    return rule_of(error).outcome


def describe_error(error: BaseException) -> ErrorDocument:
    """The document of an exception, with the error number and status of its nearest cause that has one.

    An error of another process, which has the names of its classes as ``kinds``, is one of those.
    """
    names = getattr(error, "kinds", None) or (cls.__name__ for cls in type(error).__mro__ if cls is not object)
    types = tuple(str(name)[:_MOST_NAME] for name in names)[:_MOST_TYPES]
    return ErrorDocument(types, _text(error)[:_MOST_MESSAGE], _number(error, "errno"), _number(error, "code"))


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # the text of a foreign exception is foreign code
        return ""


def _number(error: BaseException, attribute: str) -> int | None:
    for one in _causes(error):
        value = getattr(one, attribute, None)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return int(value)
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The exception, then its causes; each once."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__
