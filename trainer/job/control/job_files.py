"""The files of a job, and the documents that its roles read."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainer.errors import ConfigError, TornCheckpoint
from trainer.options.document_field import DocumentField
from trainer.wire.flight.addresses import Address
from trainer.wire.flight.error_documents import Unreachable
from transforms.errors import DataError, NotFound, StorageError
from warehouse.storage.durable_files import make_folders, sync_path, write_new_file

#: A longer file of an address or of a token is not read.
_MOST_BYTES = 1 << 16
#: The longest document that is served.
MOST_DOCUMENT_BYTES = 1 << 30
_DIGEST = re.compile(r"[0-9a-f]{64}\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class ControllerAddress:
    """The content of ``controller.json``.

    Attributes:
        address: where the controller listens, as ``host:port``.
        process_id: of the controller.
        lease: the number of its lease.
    """

    address: str
    process_id: int
    lease: int


@dataclass(frozen=True, slots=True)
class JobFiles:
    """The paths of a job's files.

    Attributes:
        root: the local folder with the lock of the job and ``job/``: the run directory, or the job folder of a run in a bucket.
    """

    root: Path

    @property
    def folder(self) -> Path:
        """The folder of the job."""
        return self.root / "job"

    @property
    def log(self) -> Path:
        """The controller's log of events."""
        return self.folder / "events.log"

    @property
    def address(self) -> Path:
        """The file with the controller's address."""
        return self.folder / "controller.json"

    @property
    def token(self) -> Path:
        """The file with the job's token."""
        return self.folder / "token"

    @property
    def spec(self) -> Path:
        """The document of the job, from which its processes start."""
        return self.folder / "job.json"

    @property
    def documents(self) -> Path:
        """The folder of documents, each named by its SHA-256."""
        return self.folder / "documents"

    @property
    def metrics(self) -> Path:
        """The folder with the addresses at which processes of the job serve metrics, in the form of Prometheus' ``file_sd_configs``."""
        return self.folder / "metrics"

    def make(self) -> None:
        """Create the folders."""
        with _storage_error(self.folder):
            make_folders(self.folder)
            make_folders(self.documents)

    def make_token(self) -> str:
        """The job's token; a new one if there is none that is this user's secret. Only the user may read the file."""
        if self._is_secret() and (token := self.read_token()):
            return token
        token = secrets.token_urlsafe(32)
        self.put_token(token)
        return token

    def read_token(self) -> str:
        """The job's token; empty if it has none."""
        content = _read_small(self.token)
        return "" if content is None else content.decode("utf-8", "replace").strip()

    def find_token(self) -> str:
        """The job's token, for a role of the job. Raises :class:`NotFound` without one: a new one would shut out the other roles."""
        if token := self.read_token():
            return token
        raise NotFound(
            "a job must have its token", where=str(self.token), next_step="start the job again: headrace train"
        )

    def put_token(self, token: str) -> None:
        """Store a token that the job was given."""
        if token != self.read_token() or not self._is_secret():
            self.make()
            replace_file(self.token, token.encode("ascii"), permissions=0o600)

    def _is_secret(self) -> bool:
        """Whether the file with the token is this user's, and no other user may read or write it."""
        try:
            found = self.token.stat()
        except OSError:
            return False
        return found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077

    def read_spec(self) -> bytes:
        """The bytes of the document of the job. Raises :class:`StorageError`."""
        with _storage_error(self.spec):
            return self.spec.read_bytes()

    def write_address(self, address: ControllerAddress) -> None:
        """Replace the controller's address, atomically."""
        content = {"address": address.address, "process_id": address.process_id, "lease": address.lease}
        replace_file(self.address, json.dumps(content).encode())

    def remove_address(self, lease: int) -> None:
        """Remove the address of the controller with this lease; that of a later one stays."""
        try:
            if self.read_address().lease == lease:
                self.address.unlink(missing_ok=True)
        except (Unreachable, DataError, OSError):
            return

    def read_address(self) -> ControllerAddress:
        """The controller's address. Raises :class:`Unreachable` without one, :class:`DataError` for a damaged file."""
        content = _read_small(self.address)
        if content is None:
            raise Unreachable("the controller of the job is not running", where=str(self.address), value="no such file",
                              next_step="start the job, or wait until its controller is back")  # fmt: skip
        return _parse_address(content, str(self.address))

    def find_controller(self) -> Address:
        """Where the controller listens now; see :meth:`read_address`."""
        return Address.parse(self.read_address().address)

    def put_document(self, content: bytes) -> str:
        """Store a document and return its digest, by which roles request it."""
        digest = hashlib.sha256(content).hexdigest()
        path = self.documents / digest
        if not path.exists():
            self.make()
            replace_file(path, content)
        return digest

    def has_document(self, digest: str) -> bool:
        """Whether a document is stored."""
        check_digest(digest)
        return (self.documents / digest).exists()

    def read_document(self, digest: str) -> bytes:
        """The document of a digest. Raises :class:`NotFound`, or :class:`DataError` for other bytes."""
        check_digest(digest)
        path = self.documents / digest
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise NotFound("a document must be one of the job", where=str(self.documents), value=digest) from None
        except OSError as error:
            raise StorageError("a document cannot be read", where=str(path), value=error.strerror) from None
        verify_document(content, digest, str(path))
        return content


def check_digest(digest: str) -> None:
    """Raise :class:`DataError` unless the text is a SHA-256 in hexadecimal digits."""
    if not _DIGEST.match(digest):
        raise DataError("a document must be named by its SHA-256", value=digest[:80], allowed="64 hexadecimal digits")


def verify_document(content: bytes, digest: str, where: str) -> None:
    """Raise :class:`DataError` unless the bytes have the digest."""
    if hashlib.sha256(content).hexdigest() != digest:
        raise DataError("a document must have the bytes of its digest, got others", where=where, value=digest)


def _parse_address(content: bytes, where: str) -> ControllerAddress:
    try:
        field = DocumentField(json.loads(content), where)
        found = ControllerAddress(field.at("address").text(), field.at("process_id").count(), field.at("lease").count())
        Address.parse(found.address)
    except (ValueError, RecursionError, TornCheckpoint, ConfigError) as error:
        raise DataError(
            "an address file must be one that a controller wrote", where=where, value=str(error).splitlines()[0]
        ) from None
    return found


def _read_small(path: Path) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read(_MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StorageError("a file of a job cannot be read", where=str(path), value=error.strerror) from None


def replace_file(path: Path, content: bytes, *, permissions: int = 0o666) -> None:
    """Write a file under a temporary name and rename it; durable on return."""
    new = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    with _storage_error(path):
        try:
            write_new_file(new, lambda file: file.write(content), permissions=permissions)
            os.replace(new, path)
            sync_path(path.parent)
        finally:
            new.unlink(missing_ok=True)


@contextmanager
def _storage_error(path: Path) -> Iterator[None]:
    """Raise an :class:`OSError` of the block as :class:`StorageError`."""
    try:
        yield
    except OSError as error:
        raise StorageError("a file of a job cannot be written", where=str(path), value=error.strerror,
                           next_step="free space on the disk, or fix the permissions") from error  # fmt: skip
