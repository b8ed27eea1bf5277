"""Objects of Google Cloud Storage.

An object becomes visible when the server has all of it and its CRC32C matches; until then readers see the previous one, or
none. Every upload names the generation that it replaces (0: none) and carries a token. A repeated upload, after the answer to
the first was lost, either finds its own object or fails: it never replaces another writer's object. Random reads stay with the
generation that they began with.
"""

from __future__ import annotations

import base64
import contextlib
import os
import random
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import IO, Any

import google_crc32c
import pyarrow as pa
from google.api_core import exceptions as google_errors

from transforms.errors import DataError, HeadraceError, StorageError
from warehouse.scheduling.backoff import Backoff, Retry
from warehouse.storage.errors import missing_file, translated_os_errors
from warehouse.storage.gcs_client import (
    RetryDecorator,
    is_transient_error,
    no_bucket,
    open_client,
    status_of,
    translated_gcs_errors,
)
from warehouse.storage.locations import GCS, GcsSettings
from warehouse.storage.object_reader import ObjectReader
from warehouse.storage.stored_file import Entries, ListedFile, Walk, Writer

#: Larger objects are sent in pieces of this size, each retried by itself.
CHUNK_BYTES = 8 << 20
_IN_MEMORY_BYTES = 8 << 20
_READ_BYTES = 1 << 20
_TIMEOUT_SECS = (10.0, 60.0)
_TOKEN = "headrace-write"
#: Attempts to replace an object; each that fails is a success of another writer.
_MOST_REPLACEMENTS = 32
#: Corrupted uploads are rare and repeated a few times.
_UPLOAD_BACKOFF = Backoff(first_secs=0.1, most_secs=1.0, jitter=1.0, attempts=4, limit_secs=120.0, shortens_last=False)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_GONE = 410


class _UploadCorrupted(Exception):
    """An upload must be repeated: its bytes changed on the way, or its session was lost."""


class GcsObjects:
    """Objects by ``bucket/name``. Thread-safe."""

    def __init__(self, client: Any, retry: Retry) -> None:
        """``retry`` repeats requests that :func:`warehouse.storage.gcs_client.is_transient_error` accepts."""
        self._client = client
        self._retrying = RetryDecorator(retry)
        self._retrying_upload = RetryDecorator(
            replace(retry, backoff=_UPLOAD_BACKOFF, is_transient=lambda error: isinstance(error, _UploadCorrupted))
        )

    def read_bytes(self, path: str) -> bytes:
        """The whole object of one generation, verified by its checksum."""
        blob = self._blob(path)
        with translated_gcs_errors(GCS + path, "read"):
            content: bytes = self._retrying(
                lambda: blob.download_as_bytes(raw_download=True, checksum="crc32c", retry=None, timeout=_TIMEOUT_SECS)
            )()
            return content

    def open_input(self, path: str) -> Any:
        """The object's current generation, opened for random reads."""
        with translated_gcs_errors(GCS + path, "read"):
            found = self._find(path)
        if found is None:
            raise missing_file(GCS + path, "read")
        blob = self._blob(path, generation=found.generation)

        def fetch(start: int, end: int) -> bytes:
            def attempt() -> bytes:
                content: bytes = blob.download_as_bytes(
                    start=start, end=end - 1, raw_download=True, checksum=None, retry=None, timeout=_TIMEOUT_SECS
                )
                if len(content) != end - start:
                    raise ConnectionError(f"{len(content)} of {end - start} bytes arrived")
                return content

            with translated_gcs_errors(GCS + path, "read"):
                return self._retrying(attempt)()

        return pa.PythonFile(ObjectReader(fetch, int(found.size)), mode="r")

    def exists(self, path: str) -> bool:
        """Whether the object exists."""
        with translated_gcs_errors(GCS + path, "look for"):
            return self._find(path) is not None

    def folder_exists(self, path: str) -> bool:
        """Whether an object has this name as a prefix. Raises :class:`StorageError` for a missing bucket."""
        return any(True for _ in self._listed(path, most=1))

    def files(self, folder: str) -> Iterator[ListedFile]:
        """Every object under a name, at any depth."""
        return _listed_files(folder.partition("/")[0], self._listed(folder))

    def folders(self, folder: str) -> Iterator[str]:
        """Every prefix under ``folder`` that a slash ends, without that slash."""
        bucket, _, name = folder.partition("/")
        above = len(name.rstrip("/").split("/")) if name.strip("/") else 0
        found: set[str] = set()
        for blob in self._listed(folder):
            parts = blob.name.split("/")[:-1]
            found.update("/".join(parts[:end]) for end in range(above + 1, len(parts) + 1))
        return (f"{bucket}/{one}" for one in found)

    def entries(self, folder: str) -> Entries:
        """The prefixes and objects directly in a prefix, by one request for each thousand of them."""
        bucket, _, name = folder.partition("/")
        start = len(name.rstrip("/")) + 1 if name.strip("/") else 0
        with _translated_list_errors(folder):
            listed = self._list(folder, delimiter="/", fields="items(name,size,timeCreated),prefixes,nextPageToken")
            files = tuple(_listed_files(bucket, listed))
            return Entries(tuple(sorted(one[start:].rstrip("/") for one in listed.prefixes)), files)

    def walk(self, root: str, folder: str) -> Walk:
        """All objects under a name. A bucket has no links."""
        start = len(root) + 1
        files = [replace(file, path=file.path[start:]) for file in self.files(f"{root}/{folder}")]
        return Walk(tuple(sorted(files, key=lambda file: file.path)), ())

    def delete_inner(self, root: str, path: str) -> bool:
        """Delete an object under a name; False if it does not exist."""
        return self.delete(f"{root}/{path}")

    def delete(self, path: str) -> bool:
        """Delete an object; False if it does not exist. True if an earlier attempt of this call may have deleted it."""
        blob = self._blob(path)
        attempts = 0

        def attempt() -> None:
            nonlocal attempts
            attempts += 1
            blob.delete(retry=None, timeout=_TIMEOUT_SECS)

        with translated_gcs_errors(GCS + path, "delete"):
            try:
                self._retrying(attempt)()
            except google_errors.NotFound:
                return attempts > 1
            return True

    def publish(self, path: str, write: Writer, synced: bool = True) -> int:
        """Write or replace an object and return its size in bytes."""
        with _buffered(path, write) as content, translated_gcs_errors(GCS + path, "write"):
            generation = 0
            for _ in range(_MOST_REPLACEMENTS):
                if self._upload(path, content, generation):
                    return content.size_bytes
                found = self._find(path)
                generation = int(found.generation) if found is not None else 0
            raise StorageError("cannot write: other writers replaced the file during every attempt", where=GCS + path,
                               value=f"{_MOST_REPLACEMENTS} attempts", next_step="use a name of its own for every writer")  # fmt: skip

    def create(self, path: str, write: Writer) -> bool:
        """Write an object unless it exists."""
        with _buffered(path, write) as content, translated_gcs_errors(GCS + path, "write"):
            return self._upload(path, content, 0)

    def upload(self, path: str, source: IO[bytes]) -> bool:
        """Write the content of an open file unless the object exists."""
        content = _Content(path, source)
        with translated_gcs_errors(GCS + path, "write"):
            return self._upload(path, content, 0)

    def _upload(self, path: str, content: _Content, generation: int) -> bool:
        """Replace this generation; False if another one is current."""
        token = uuid.uuid4().hex
        return self._retrying_upload(lambda: self._upload_once(path, content, generation, token))()

    def _upload_once(self, path: str, content: _Content, generation: int, token: str) -> bool:
        blob = self._blob(path)
        blob.chunk_size = CHUNK_BYTES
        blob.crc32c = content.crc32c  # the server rejects an object with another one
        blob.metadata = {_TOKEN: token}
        try:
            blob.upload_from_file(
                content.file, rewind=True, size=content.size_bytes, content_type="application/octet-stream",
                checksum=None, if_generation_match=generation, retry=self._retrying, timeout=_TIMEOUT_SECS,
            )  # fmt: skip
        except google_errors.GoogleAPICallError as error:
            return self._settle(path, token, error)
        if blob.crc32c != content.crc32c:
            self._remove(blob)
            raise _UploadCorrupted("the object store has other bytes than were sent")
        return True

    def _settle(self, path: str, token: str, error: google_errors.GoogleAPICallError) -> bool:
        """Whether an upload with this answer succeeded: an earlier attempt of it may have."""
        status = status_of(error)
        if status not in (400, 404, _GONE, 412):
            raise error
        found = self._find(path)
        if found is not None and (found.metadata or {}).get(_TOKEN) == token:
            return True
        if status == 412:
            return False
        if status == 404 and not self._bucket_exists(path):
            raise no_bucket(path.partition("/")[0], GCS + path) from error
        if status == 400 and "crc32c" not in str(error).lower():
            raise error
        raise _UploadCorrupted(str(error)) from error

    def _remove(self, blob: Any) -> None:
        try:
            blob.delete(if_generation_match=blob.generation, retry=self._retrying, timeout=_TIMEOUT_SECS)
        except (google_errors.NotFound, google_errors.PreconditionFailed):
            return  # another writer replaced or removed it

    def _find(self, path: str) -> Any:
        """The object's metadata, or None."""
        bucket, _, name = path.partition("/")
        return self._client.bucket(bucket).get_blob(name, retry=self._retrying, timeout=_TIMEOUT_SECS)

    def _bucket_exists(self, path: str) -> bool:
        try:
            next(iter(self._listed(path.partition("/")[0], most=1)), None)
        except HeadraceError:
            return False
        return True

    def _listed(self, folder: str, most: int | None = None) -> Iterator[Any]:
        with _translated_list_errors(folder):
            yield from self._list(folder, max_results=most, fields="items(name,size,timeCreated),nextPageToken")

    def _list(self, folder: str, **options: Any) -> Any:
        bucket, _, name = folder.partition("/")
        name = name.rstrip("/")
        return self._client.list_blobs(
            bucket, prefix=f"{name}/" if name else None, retry=self._retrying, timeout=_TIMEOUT_SECS, **options
        )

    def _blob(self, path: str, generation: int | None = None) -> Any:
        bucket, _, name = path.partition("/")
        if not name:
            raise DataError("the location of a file must name an object, not only a bucket", where=GCS + path)
        return self._client.bucket(bucket).blob(name, generation=generation)


@contextlib.contextmanager
def _translated_list_errors(folder: str) -> Iterator[None]:
    with translated_gcs_errors(GCS + folder, "list"):
        try:
            yield
        except google_errors.NotFound as error:
            raise no_bucket(folder.partition("/")[0], GCS + folder) from error


def _listed_files(bucket: str, blobs: Iterable[Any]) -> Iterator[ListedFile]:
    for blob in blobs:
        if not blob.name.endswith("/"):  # an empty object by which consoles show a folder
            written_ns = (blob.time_created - _EPOCH) // timedelta(microseconds=1) * 1000
            yield ListedFile(f"{bucket}/{blob.name}", int(blob.size), written_ns)


class _Content:
    """The bytes of an upload, in an open file, and their checksum."""

    def __init__(self, path: str, file: IO[bytes]) -> None:
        self.file = file
        with translated_os_errors(GCS + path, "read the buffered file"):
            self.size_bytes = file.seek(0, os.SEEK_END)
            self.crc32c = self._crc32c()

    def _crc32c(self) -> str:
        checksum = google_crc32c.Checksum()
        self.file.seek(0)
        while piece := self.file.read(_READ_BYTES):
            checksum.update(piece)
        return base64.b64encode(checksum.digest()).decode("ascii")


@contextlib.contextmanager
def _buffered(path: str, write: Writer) -> Iterator[_Content]:
    """The bytes that ``write`` writes: in memory while they are few, else in an unnamed temporary file."""
    with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES) as file:
        with translated_os_errors(GCS + path, "buffer the file"):
            write(file)
        yield _Content(path, file)


def gcs_objects(settings: GcsSettings) -> GcsObjects:
    """The objects for these settings; all callers in a process share connections."""
    return _shared(settings, os.getpid())  # connections do not survive a fork


@lru_cache(maxsize=16)
def _shared(settings: GcsSettings, _process: int) -> GcsObjects:
    return GcsObjects(
        open_client(settings), Retry(_waits(settings), is_transient_error, time.sleep, random.random, time.monotonic)
    )


def _waits(settings: GcsSettings) -> Backoff:
    """Exponential backoff with full jitter, from half a second to half a minute."""
    return Backoff(first_secs=0.5, most_secs=30.0, jitter=1.0, attempts=10, limit_secs=settings.retry_limit_secs,
                   shortens_last=False)  # fmt: skip
