from __future__ import annotations

import errno
import json

import pytest

from trainer.errors import (
    BadBatch,
    BadLabel,
    CheckpointNotWritten,
    ConfigError,
    DataNotReady,
    MemoryFull,
    NonFiniteLoss,
    ServerLost,
    TornCheckpoint,
)
from trainer.scheduling.holds import (
    CAUSE_RULES,
    DEFAULT_RULE,
    TYPE_RULES,
    ErrorClass,
    ErrorDocument,
    HoldRule,
    classify,
    describe_error,
    rule_of,
)
from trainer.wire.flight.error_documents import from_bytes, to_bytes
from transforms.errors import StorageError
from warehouse.errors import CatalogLost, MemoDamaged, MissingFile, SchemaDrift, UnknownModel

P, D, T = ErrorClass.PERMANENT, ErrorClass.DATA_NOT_READY, ErrorClass.TRANSIENT


def example(rule: HoldRule) -> list[ErrorDocument]:
    """An error for every type, number and status of a rule."""
    message = {"": "text"}.get(
        rule.pattern, "XLA compilation ran out of memory" if "memory" in rule.pattern else "cannot compile"
    )
    if rule.types:
        return [ErrorDocument((name, "Exception"), message) for name in sorted(rule.types)]
    if rule.errnos:
        return [ErrorDocument(("StorageError",), message, errno=number) for number in sorted(rule.errnos)]
    return [ErrorDocument(("StorageError",), message, status=status) for status in sorted(rule.statuses)]


@pytest.mark.parametrize("rule", [*CAUSE_RULES, *TYPE_RULES], ids=lambda rule: rule.why)
def test_each_row_decides_its_errors(rule: HoldRule) -> None:
    documents = example(rule)
    assert documents
    assert all(rule_of(one) is rule for one in documents)
    assert rule.why


def test_no_class_has_two_rows_without_a_pattern() -> None:
    plain = [name for rule in TYPE_RULES if not rule.pattern for name in rule.types]
    assert len(plain) == len(set(plain))


def test_an_unknown_error_is_transient() -> None:
    assert rule_of(ErrorDocument(("Strange", "Exception"), "?")) is DEFAULT_RULE
    assert classify(ErrorDocument(())) is T


class _Answer(Exception):
    def __init__(self, code: int) -> None:
        super().__init__("the server answered")
        self.code = code


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConfigError("dim must be positive"), P),
        (NonFiniteLoss("training diverged"), P),
        (BadLabel("a label must be 0 or 1"), P),
        (TornCheckpoint("torn"), P),
        (SchemaDrift("drift"), P),
        (UnknownModel("no such model"), P),
        (MemoryError(), P),
        (ImportError("no module"), P),
        (KeyError("x"), P),
        (json.JSONDecodeError("bad", "", 0), P),
        (PermissionError(errno.EACCES, "denied"), P),
        (_Answer(403), P),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate"), P),
        (DataNotReady("the memos are not ready"), D),
        (CheckpointNotWritten("disk full"), T),
        (StorageError("unreachable"), T),
        (MissingFile("gone"), T),
        (MemoDamaged("damaged"), T),
        (CatalogLost("no connection"), T),
        (ConnectionResetError(errno.ECONNRESET, "reset"), T),
        (TimeoutError(), T),
        (BrokenPipeError(errno.EPIPE, "pipe"), T),
        (_Answer(503), T),
        (_Answer(429), T),
        (OSError(errno.ENOSPC, "no space"), T),
        (RuntimeError("something else"), T),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Exception) else str(one),
)  # fmt: skip
def test_real_exceptions(error: Exception, expected: ErrorClass) -> None:
    assert classify(describe_error(error)) is expected


def test_the_cause_decides() -> None:
    """A permission that is missing is permanent although the storage's error alone would be transient."""
    error = StorageError("cannot write")
    error.__cause__ = PermissionError(errno.EACCES, "denied")
    assert classify(describe_error(error)) is P
    wrapped = RuntimeError("a stage failed")
    wrapped.__cause__ = _Answer(503)
    assert describe_error(wrapped).status == 503


def test_documents_are_bounded_and_name_the_most_derived_type_first() -> None:
    class Odd(ValueError):
        def __str__(self) -> str:
            raise RuntimeError

    document = describe_error(Odd())
    assert document.types[:2] == ("Odd", "ValueError")
    assert document.summary == "Odd"
    assert len(describe_error(ValueError("x" * 10**6)).message) == 2000
    loop = ValueError("a")
    loop.__cause__ = loop
    assert describe_error(loop).summary == "ValueError: a"


def test_an_error_of_another_process_is_classified_by_its_kinds():
    """A server that refuses tables holds the job as a host does that refuses them; else it would restart for ever."""
    for error in (ConfigError("x"), NonFiniteLoss("x"), ServerLost("x"), BadBatch("x")):
        remote = from_bytes(to_bytes(error), "127.0.0.1:1")
        assert classify(describe_error(remote)) is classify(describe_error(error))
    assert classify(describe_error(from_bytes(to_bytes(ConfigError("x")), "s"))) is ErrorClass.PERMANENT
    assert classify(describe_error(from_bytes(to_bytes(ServerLost("x")), "s"))) is ErrorClass.TRANSIENT


def test_the_reason_of_a_hold_has_all_that_an_error_of_headrace_says():
    error = MemoryFull("a folder must have space", where="/m: table one", value="9 bytes needed, 1 bytes free", allowed="9", next_step="enlarge it")  # fmt: skip
    document = describe_error(error)
    assert classify(document) is ErrorClass.PERMANENT
    assert document.summary == "MemoryFull: a folder must have space"
    assert document.reason == (
        "MemoryFull: a folder must have space; where: /m: table one; value: '9 bytes needed, 1 bytes free'; allowed: 9; next: enlarge it"
    )
    assert describe_error(ValueError("one line\nvalues of a trace")).reason == "ValueError: one line"
