"""Calls of a controller: by roles, by supervisors and by commands of people."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from trainer.errors import DamagedFrame
from trainer.job.control.job_files import JobFiles, check_digest, verify_document
from trainer.job.control.messages import (
    MOST_ANSWER_BYTES,
    MOST_REQUEST_BYTES,
    Answer,
    JobStatus,
    RoleCall,
    read_answer,
    role_call_bytes,
    to_bytes,
)
from trainer.scheduling.documents import value_document
from trainer.scheduling.events import DataRange, Role
from trainer.scheduling.holds import ErrorDocument
from trainer.wire.flight.addresses import Address
from trainer.wire.flight.client import Client, RemoteError, Unreachable
from transforms.errors import Busy, DataError, HeadraceError, InputError, StorageError

#: The classes of errors after which the same call may succeed later.
_PASSING = frozenset({"Unreachable", "Busy", "StorageError", "DamagedFrame"})
#: The actions that change nothing.
_READS = frozenset({"status", "document", "spec"})


def is_away(error: BaseException) -> bool:
    """Whether the controller cannot answer now: it is not reached, it ends, its disk is full, or bytes on the way are damaged."""
    if isinstance(error, RemoteError):
        return bool(_PASSING & set(error.kinds))
    return isinstance(error, (Unreachable, Busy, StorageError, DamagedFrame))


def is_other_service(error: BaseException) -> bool:
    """Whether another service has the port of the controller: it refuses the token, or has another job."""
    return (isinstance(error, RemoteError) and "RunMismatch" in error.kinds) or type(error) is InputError


def _same(address: Address) -> Address:
    return address


class ControllerClient:
    """A connection to the controller of a job, which any thread may use. A call is made once: see :func:`is_away`.

    Args:
        address: the controller's address, or a function that finds it, which is called again after an error: a
            restarted controller has another port.
        job: the identity of the job; the controller of another job refuses the calls.
        token: of the job.
        timeout_secs: of a call.
    """

    def __init__(
        self,
        address: Address | Callable[[], Address],
        *,
        job: str = "",
        token: str = "",
        timeout_secs: float = 10.0,
    ) -> None:
        self.job = job
        self._find: Callable[[], Address] = address if callable(address) else partial(_same, address)
        self._token, self._timeout_secs = token, timeout_secs
        self._lock = threading.Lock()
        self._client: Client | None = None

    @classmethod
    def of_run(cls, files: JobFiles, *, job: str = "", timeout_secs: float = 10.0) -> ControllerClient:
        """The client of a job on this machine, by its files."""
        return cls(files.find_controller, job=job, token=files.read_token(), timeout_secs=timeout_secs)

    def send(self, call: RoleCall) -> Answer:
        """A role's message and its answer."""
        return read_answer(self._call("role", role_call_bytes(call), wait_secs=call.wait_secs))

    def status(self) -> JobStatus:
        """The job now."""
        return JobStatus.read(self._command("status"))

    def notice(self, grace_secs: float, role: Role | None = None) -> None:
        """A preemption notice: the role, or the whole job, ends in ``grace_secs``."""
        self._command("notice", grace_secs=grace_secs, role=value_document(role) if role else None)

    def release(self) -> None:
        """End a hold. Raises :class:`RemoteError` if the job is not held."""
        self._command("release")

    def stop(self, *, now: bool = False) -> None:
        """Stop the job after a commit, or ``now``, which gives the epoch up."""
        self._command("stop", now=now)

    def data(self, data: DataRange) -> None:
        """There is more data to train, or data that was not ready is ready."""
        self._command("data", data=value_document(data))

    def partition(self, digest: str) -> None:
        """Hosts hold the tables by the plan of this document from the next attempt on; empty: rows are spread over them."""
        self._command("partition", partition=digest)

    def servers(self, count: int) -> None:
        """So many parameter servers shall have the tables. Raises :class:`RemoteError` for a number that the job may not have."""
        self._command("servers", servers=count)

    def plan_failed(self, error: ErrorDocument) -> None:
        """The units cannot be planned."""
        self._command("plan_failed", error=value_document(error))

    def document(self, digest: str) -> bytes:
        """The document of a digest, verified. Raises :class:`RemoteError` with ``NotFound`` if the job has none."""
        check_digest(digest)
        content = self._command("document", sha256=digest)
        verify_document(content, digest, str(self._connection().address))
        return content

    def spec(self) -> bytes:
        """The document of the controller's job, whichever it is."""
        return self._call("spec", to_bytes({}))

    def close(self) -> None:
        """End the connection."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _command(self, action: str, **members: object) -> bytes:
        return self._call(action, to_bytes({"job": self.job, **members}))

    def _call(self, action: str, content: bytes, wait_secs: float = 0.0) -> bytes:
        if len(content) > MOST_REQUEST_BYTES:
            raise DataError("a message to a controller must be short", where=action, value=len(content),
                            allowed=f"at most {MOST_REQUEST_BYTES:,} bytes")  # fmt: skip
        client = self._connection()

        try:
            return client.act(
                action, content, b"".join, timeout_secs=self._timeout_secs + wait_secs, repeats=action in _READS
            )
        except HeadraceError as error:
            if not isinstance(error, RemoteError):
                self._forget(client)
            raise

    def _connection(self) -> Client:
        with self._lock:
            if self._client is None:
                self._client = Client(self._find(), token=self._token, most_bytes=MOST_ANSWER_BYTES)
            return self._client

    def _forget(self, client: Client) -> None:
        """After a failed call, find the controller again at the next one. Calls of other threads may still end."""
        with self._lock:
            if self._client is client:
                self._client = None
