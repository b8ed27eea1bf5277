"""The log of a job's events: lines with checksums, appended and synced, that begin with a job.

A line is ``<number> <bytes> <checksum> <JSON>``. Line 0 names the job, the release and the controller's lease, and holds a job; each
other line holds the entries of one append. A controller that starts, or whose log has grown long, replaces the file atomically by
one that begins with its current job: so a file has one writer, and an earlier controller appends to a file without a name.

An append is one line, so a crash can damage the last line only, which was not synced then: it is dropped if it looks torn (it ends
before its length, or holds bytes that were never written). Any other damage is an error.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from trainer.checkpoints.manifest import parse_json
from trainer.errors import DamagedLog, EventNotLogged, LeaseLost, RunMismatch, TornCheckpoint
from trainer.options.document_field import DocumentField
from trainer.scheduling.documents import read_value, value_document
from trainer.scheduling.events import Event, Role
from trainer.scheduling.job import Job
from transforms.errors import StorageError
from warehouse.storage.durable_files import make_folders, sync_path, write_new_file

FORMAT = "headrace.events/1"
#: The longest line. A job and its plan's ends of epochs take far less.
MOST_LINE_BYTES = 64 << 20
_LINE = re.compile(rb"(0|[1-9][0-9]{0,14}) ([1-9][0-9]{0,8}) ([0-9a-f]{16}) ", re.ASCII)
_MOST_HEAD_BYTES = 64
_ATTEMPT = re.compile(rb'"attempt":\s?([0-9]{1,9})\b')


@dataclass(frozen=True, slots=True)
class Entry:
    """An event and the times of the job before it: events that change nothing else are not logged.

    Attributes:
        event: the event.
        clock_secs, now_secs: of the job before the event.
        seen: of members that were heard since the entry before, when, in job seconds.
    """

    event: Event
    clock_secs: float | None = None
    now_secs: float = 0.0
    seen: Mapping[Role, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogOwner:
    """The writer of a log.

    Attributes:
        job: the identity of the job.
        release: of the controller.
        lease: the number of its lease.
    """

    job: str
    release: str
    lease: int


@dataclass(frozen=True, slots=True)
class LogStart:
    """The first line of a log: its writer, and the job that its entries continue."""

    owner: LogOwner
    job: Job


@contextmanager
def read_log(path: Path, *, job: str, release: str) -> Iterator[tuple[LogStart, Iterator[Entry]] | None]:
    """The start and the entries of a log, one line at a time; None if there is no log.

    Raises :class:`RunMismatch` for the log of another job or release, :class:`DamagedLog` for other bytes than were written.
    """
    try:
        file = open(path, "rb")  # noqa: SIM115 (closed below; its errors differ from those of the block)
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        raise _unreadable(path, error) from None
    with file:
        lines = _lines(file, path)
        first = next(lines, None)
        if first is None:
            raise DamagedLog("a log must begin with a job, got none", where=str(path))
        start = _read_start(first, path, job, release)
        yield start, _entries(lines)


@dataclass(frozen=True, slots=True)
class EarlierLog:
    """What is known of a log of another release, whose entries this one may not know.

    Attributes:
        release: that wrote it.
        lease: of its controller.
        attempt: the highest number of an attempt in it.
    """

    release: str
    lease: int
    attempt: int


def look_at_log(path: Path, *, job: str, release: str) -> EarlierLog | None:
    """The log of a job by another release; None without one, and for any other log. Raises :class:`~transforms.errors.StorageError`."""
    attempt = 0
    try:
        with open(path, "rb") as file:
            head = file.readline(MOST_LINE_BYTES)
            found = _loose_head(head, job)
            if found is None or found.release == release:
                return None
            for line in itertools.chain([head], iter(lambda: file.readline(MOST_LINE_BYTES), b"")):
                attempt = max([attempt, *(int(one) for one in _ATTEMPT.findall(line))])
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(path, error) from None
    return replace(found, attempt=attempt)


def _loose_head(line: bytes, job: str) -> EarlierLog | None:
    """The release and the lease of the first line of a job's log, of whatever format it is; None for another line."""
    head = _LINE.match(line)
    try:
        owner = json.loads(line[head.end() if head else 0 :])["owner"]
        release, lease, of = owner["release"], owner["lease"], owner["job"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    is_known = isinstance(release, str) and type(lease) is int and 0 <= lease < 1 << 62 and of == job
    return EarlierLog(release, lease, 0) if is_known else None


def _unreadable(path: Path, error: OSError) -> StorageError:
    return StorageError("the log of a job cannot be read", where=str(path), value=error.strerror)


def _read_start(found: DocumentField, path: Path, job: str, release: str) -> LogStart:
    with _damage():
        members = found.members()
        form = members["format"].text() if "format" in members else "none"
        if form != FORMAT:
            raise RunMismatch("the log of a job must have a format of this release", where=str(path), value=form[:80],
                              allowed=FORMAT, next_step="continue with the release of Headrace that wrote it")  # fmt: skip
        owner = read_value(LogOwner, found.at("owner"))
        for what, own, other in (("job", job, owner.job), ("release", release, owner.release)):
            if own != other:
                raise RunMismatch(f"the log must have the same {what}", where=str(path), value=other[:200], allowed=own,
                                  next_step="begin the training again with this release: it goes on from its newest commit" if what == "release" else
                                  "continue with the job that wrote it, or move the file away: the job then goes on from its newest commit")  # fmt: skip
        return LogStart(owner, read_value(Job, found.at("job")))


def _entries(lines: Iterator[DocumentField]) -> Iterator[Entry]:
    for line in lines:
        with _damage():
            found = [read_value(Entry, item) for item in line.items()]
        yield from found


@contextmanager
def _damage() -> Iterator[None]:
    try:
        yield
    except TornCheckpoint as error:
        raise DamagedLog("a line of a log must be one that a controller wrote", where=error.where, value=error.value,
                         allowed=error.allowed or error.what) from None  # fmt: skip


def _lines(file: IO[bytes], path: Path) -> Iterator[DocumentField]:
    """The documents of the lines. A torn last line is left out."""
    for number in itertools.count():
        offset = file.tell()
        line = _read_line(file, path)
        if not line:
            return
        content = _checked(line, number)
        if content is None:
            if _is_torn(line, file, path):
                return
            raise DamagedLog("a log must have the bytes that were written", where=f"{path}: line {number}, byte {offset}",
                             value=line[:60], allowed="a number, a length, a checksum and a document",
                             next_step="restore the file, or move it away: the job then continues from its newest commit")  # fmt: skip
        place = f"{path}: line {number}"
        with _damage():
            document = parse_json(content, place)
        yield DocumentField(document, place)


def _read_line(file: IO[bytes], path: Path) -> bytes:
    try:
        return file.readline(MOST_LINE_BYTES)
    except OSError as error:
        raise _unreadable(path, error) from None


def _checked(line: bytes, number: int | None) -> bytes | None:
    """The content of a line; None if it is not as it was written."""
    head = _LINE.match(line[:_MOST_HEAD_BYTES])
    if head is None or not line.endswith(b"\n"):
        return None
    content = line[head.end() : -1]
    found, size, checksum = head.groups()
    if len(content) != int(size) or checksum.decode() != _checksum(int(found), content):
        return None
    return content if number in (None, int(found)) else None


def _is_torn(line: bytes, file: IO[bytes], path: Path) -> bool:
    """Whether an invalid line can be the end of an append that a crash interrupted."""
    if not line.endswith(b"\n"):
        head = _LINE.match(line[:_MOST_HEAD_BYTES])
        is_short = head is None or len(line) - head.end() <= int(head.group(2))
        is_last = len(line) < MOST_LINE_BYTES
        has_holes = b"\0\0" in line or line.endswith(b"\0")
        return is_last and ((is_short and (head is not None or len(line) < _MOST_HEAD_BYTES)) or has_holes)
    if b"\0\0" not in line or _holds_line(line):
        return False
    while more := _read_line(file, path):
        if _holds_line(more):
            return False
    return True


def _holds_line(content: bytes) -> bool:
    """Whether bytes contain a whole line as it was written, at any place."""
    for head in _LINE.finditer(content):
        number, size, checksum = head.groups()
        stop = head.end() + int(size)
        found = content[head.end() : stop]
        if content[stop : stop + 1] == b"\n" and checksum.decode() == _checksum(int(number), found):
            return True
    return False


def _checksum(number: int, content: bytes) -> str:
    return hashlib.blake2b(b"%d " % number + content, digest_size=8).hexdigest()


def _line(number: int, document: object) -> bytes:
    content = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
    return b"%d %d %s " % (number, len(content), _checksum(number, content).encode()) + content + b"\n"


class EventLog:
    """A log that one controller writes.

    Args:
        path: of the file, which is replaced.
        owner: the writer.
        job: the job that the log begins with.
        most_bytes: a longer log is replaced by one that begins with the current job.
        sync: makes the content of an open file durable.

    Raises :class:`EventNotLogged` if the file cannot be written; the one before is untouched.
    """

    def __init__(
        self,
        path: Path,
        owner: LogOwner,
        job: Job,
        *,
        most_bytes: int = 1 << 20,
        sync: Callable[[int], None] = os.fsync,
    ) -> None:
        self.path, self.owner = path, owner
        self._least_bytes, self._sync = most_bytes, sync
        self._file: int | None = None
        self._is_sound = True
        self.size_bytes = self.limit_bytes = 0
        self._number = 0
        self.rewrite(job)

    @property
    def is_long(self) -> bool:
        """Whether the log should be replaced by one that begins with the current job."""
        return self.size_bytes > self.limit_bytes

    def append(self, entries: Sequence[Entry], job: Job) -> None:
        """Append entries, durably. ``job``: as it is before them.

        Raises :class:`EventNotLogged` if they are not durable; nothing is lost, and the next append may succeed.
        """
        line = _line(self._number, [value_document(one) for one in entries])
        if len(line) > MOST_LINE_BYTES:
            raise EventNotLogged(
                "events must fit in a line of the log", value=len(line), allowed=f"at most {MOST_LINE_BYTES:,} bytes"
            )
        if not self._is_sound:
            self.rewrite(job)
            line = _line(self._number, [value_document(one) for one in entries])
        self._check_own()
        assert self._file is not None
        try:
            self._write(line)
        except OSError as error:
            self._is_sound = self._cut()
            raise _not_logged(self.path, error) from None
        try:
            self._sync(self._file)
        except OSError as error:
            self._is_sound = False  # the system may have dropped the bytes, and a later sync would not say so
            raise _not_logged(self.path, error) from None
        self.size_bytes += len(line)
        self._number += 1

    def _write(self, line: bytes) -> None:
        assert self._file is not None
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(self._file, rest) :]

    def _cut(self) -> bool:
        """Remove a line that was written in part; whether that succeeded."""
        assert self._file is not None
        with suppress(OSError):
            os.ftruncate(self._file, self.size_bytes)
            return True
        return False

    def compact(self, job: Job) -> bool:
        """Replace the log by one that begins with ``job``; whether that succeeded. Else the log goes on, and grows."""
        try:
            self.rewrite(job)
        except EventNotLogged:
            self.limit_bytes = self.size_bytes + self._least_bytes // 4
            return False
        return True

    def rewrite(self, job: Job) -> None:
        """Replace the log atomically by one that begins with ``job``. Raises :class:`EventNotLogged`; the log is as before."""
        document = {"format": FORMAT, "owner": value_document(self.owner), "job": value_document(job)}
        first = _line(0, document)
        if self._file is not None:
            self._check_own()
        new = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}")
        try:
            make_folders(self.path.parent)
            write_new_file(new, lambda file: file.write(first))
            self._is_sound = False
            os.replace(new, self.path)
            self.close()
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
            sync_path(self.path.parent)
        except OSError as error:
            with suppress(OSError):
                new.unlink(missing_ok=True)
            raise _not_logged(self.path, error) from None
        self._is_sound, self._number, self.size_bytes = True, 1, len(first)
        self.limit_bytes = max(self._least_bytes, 4 * len(first))

    def _check_own(self) -> None:
        """Raise :class:`LeaseLost` if the file is not the one that this controller wrote."""
        assert self._file is not None
        own = os.fstat(self._file)
        try:
            named = os.stat(self.path)
        except OSError:
            named = None
        if named is None or (named.st_dev, named.st_ino) != (own.st_dev, own.st_ino):
            raise LeaseLost("the log of a job must be that of its controller", where=str(self.path),
                            value="it was replaced or removed", next_step="start the job again")  # fmt: skip

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _not_logged(path: Path, error: OSError) -> EventNotLogged:
    return EventNotLogged("an event must be written to the log before it is acted on", where=str(path), value=error.strerror,
                          next_step="free space on the disk; the event is repeated by itself")  # fmt: skip
