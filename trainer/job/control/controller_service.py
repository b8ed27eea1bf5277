"""The controller's Flight service: it checks messages, and hands them to the controller's thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from trainer.errors import RunMismatch, TornCheckpoint
from trainer.job.control.controller import Controller
from trainer.job.control.job_files import JobFiles
from trainer.job.control.messages import (
    MOST_REQUEST_BYTES,
    check_role,
    read_members,
    read_message_value,
    read_role_call,
)
from trainer.options.document_field import DocumentField
from trainer.scheduling.events import (
    DataChanged,
    DataRange,
    Event,
    Notice,
    PartitionChanged,
    PlanFailed,
    Released,
    Role,
    ServersChanged,
    StopAsked,
)
from trainer.scheduling.holds import ErrorDocument
from trainer.wire.flight.action_service import ActionService
from trainer.wire.flight.addresses import Address
from trainer.wire.flight.error_documents import Unreachable
from transforms.errors import DataError, InputError

#: How long a call waits for the controller's thread, beside the wait that it asks for.
_ANSWER_SECS = 60.0
_PIECE_BYTES = 1 << 20
_MOST_SECS = 1e9


class ControllerService(ActionService):
    """Serves roles, supervisors and commands.

    Args:
        address: where to listen.
        controller: which receives the messages.
        files: of the job, from which documents are served.
        token: of the job; empty for none.
    """

    def __init__(self, address: Address, controller: Controller, files: JobFiles, *, token: str = "") -> None:
        self._controller, self._files = controller, files
        self._job = controller.settings.job
        self._actions: Mapping[str, Callable[[bytes], Iterator[bytes]]] = {
            "role": self._role,
            "status": self._status,
            "notice": self._notice,
            "release": self._release,
            "stop": self._stop,
            "data": self._data,
            "partition": self._partition,
            "servers": self._servers,
            "plan_failed": self._plan_failed,
            "document": self._document,
            "spec": self._spec,
        }
        super().__init__(address, self._answer_action, token=token, most_bytes=MOST_REQUEST_BYTES)

    def _answer_action(self, name: str, content: bytes) -> Iterator[bytes]:
        if name not in self._actions:
            raise InputError(
                "an action must be one that a controller offers", value=name[:80], allowed=", ".join(self._actions)
            )
        return self._actions[name](content)

    def _role(self, content: bytes) -> Iterator[bytes]:
        call = read_role_call(content)
        self._check_job(call.job)
        yield _result(self._controller.call(call), call.wait_secs)

    def _status(self, content: bytes) -> Iterator[bytes]:
        self._members(content)
        yield _result(self._controller.status())

    def _notice(self, content: bytes) -> Iterator[bytes]:
        grace, role = self._members(content, "grace_secs", "role")
        chosen = None if role.value is None else read_message_value(Role, role)
        if chosen is not None:
            check_role(chosen)
        seconds = _plain(grace.number)
        if not 0 <= seconds <= _MOST_SECS:
            raise DataError("a grace period must be a number of seconds", value=seconds, allowed="at least 0")
        yield self._apply(Notice(0.0, seconds, chosen))

    def _release(self, content: bytes) -> Iterator[bytes]:
        self._members(content)
        yield self._apply(Released(0.0))

    def _stop(self, content: bytes) -> Iterator[bytes]:
        (now,) = self._members(content, "now")
        if not isinstance(now.value, bool):
            raise DataError(
                '"now" of a stop must be true or false', value=repr(now.value)[:80], allowed="true or false"
            )
        yield self._apply(StopAsked(0.0, now.value))

    def _data(self, content: bytes) -> Iterator[bytes]:
        (data,) = self._members(content, "data")
        yield self._apply(DataChanged(0.0, read_message_value(DataRange, data)))

    def _partition(self, content: bytes) -> Iterator[bytes]:
        (partition,) = self._members(content, "partition")
        digest = _plain(partition.text)
        if digest:
            self._files.read_document(digest)  # which the hosts will ask for
        yield self._apply(PartitionChanged(0.0, digest))

    def _servers(self, content: bytes) -> Iterator[bytes]:
        (servers,) = self._members(content, "servers")
        count, limits = _plain(servers.count), self._controller.server_limits
        if not limits[0] <= count <= limits[1]:
            raise InputError("the number of servers must be in the range of the job", value=count,
                             allowed=f"{limits[0]} to {limits[1]}" if limits[1] else "(their number is fixed)",
                             next_step="train with --servers LEAST..MOST")  # fmt: skip
        yield self._apply(ServersChanged(0.0, count))

    def _plan_failed(self, content: bytes) -> Iterator[bytes]:
        (error,) = self._members(content, "error")
        yield self._apply(PlanFailed(0.0, read_message_value(ErrorDocument, error)))

    def _document(self, content: bytes) -> Iterator[bytes]:
        (digest,) = self._members(content, "sha256")
        yield from _pieces(self._files.read_document(_plain(digest.text)))

    def _spec(self, content: bytes) -> Iterator[bytes]:
        """The document of the job, for a role that has its token, but not its files."""
        read_members(content)
        yield from _pieces(self._files.read_spec())

    def _apply(self, event: Event) -> bytes:
        return _result(self._controller.request(event))

    def _members(self, content: bytes, *names: str) -> tuple[DocumentField, ...]:
        job, *rest = read_members(content, "job", *names)
        self._check_job(_plain(job.text))
        return tuple(rest)

    def _check_job(self, job: str) -> None:
        if job != self._job:
            raise RunMismatch("a message must name the controller's job", value=job[:200], allowed=self._job,
                              next_step="give the address of the job's own controller")  # fmt: skip


def _pieces(document: bytes) -> Iterator[bytes]:
    for start in range(0, max(len(document), 1), _PIECE_BYTES):
        yield document[start : start + _PIECE_BYTES]


def _result(answer: Future[bytes], wait_secs: float = 0.0) -> bytes:
    try:
        return answer.result(timeout=wait_secs + _ANSWER_SECS)
    except FutureTimeout:
        raise Unreachable("a controller must answer in time", value=f"no answer for {_ANSWER_SECS:g} s",
                          next_step="see the log of its process") from None  # fmt: skip


def _plain(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except TornCheckpoint as error:
        raise DataError(
            "a message must be a valid document", where=error.where, value=error.value, allowed=error.allowed
        ) from None
