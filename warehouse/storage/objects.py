"""Objects in S3 and, read-only, in Azure Blob Storage.

An object becomes visible when the server has all of it, and its SHA-256 matches. A small object replaces a version that was
looked up before, by its ETag, and carries a token: a repeated upload, after the answer to the first was lost, either
finds its own object or fails. A larger one is sent in pieces and takes the place of any. Random reads stay with the version
that they began with. A process that is forked after the first request must not use them: it would wait for ever.
"""

from __future__ import annotations

import itertools
import os
import random
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import IO, Any

from transforms.errors import DataError, StorageError
from warehouse.scheduling.backoff import Backoff, Retry
from warehouse.storage.errors import translated_os_errors
from warehouse.storage.object_clients import is_transient, open_client, translated_object_errors
from warehouse.storage.object_locations import S3Settings, parse_object_location
from warehouse.storage.object_reader import ObjectFile, ObjectReader
from warehouse.storage.stored_file import Entries, ListedFile, Walk, Writer, copy_of, entries_among

#: Objects of more bytes are sent in pieces of :data:`PIECE_BYTES`, without a precondition.
CONDITIONAL_BYTES = 64 << 20
PIECE_BYTES = 8 << 20
#: A longer range is requested in parts of this size at the same time.
PART_BYTES = 4 << 20
_REQUESTS_AT_ONCE = 16
_IN_MEMORY_BYTES = 8 << 20
_TOKEN = "headrace-write"
#: Attempts to replace an object; each that fails is a success of another writer.
_MOST_REPLACEMENTS = 32
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LISTED_AT_ONCE = 1000


class StoredObjects:
    """Objects by ``place/name`` (:class:`~warehouse.storage.object_locations.ObjectLocation`). Thread-safe."""

    def __init__(self, scheme: str, settings: S3Settings) -> None:
        self._scheme, self._settings = scheme, settings
        self._process = 0
        self._clients: dict[str, Any] = {}
        self._retry = Retry(_waits(settings), is_transient, time.sleep, random.random, time.monotonic)

    def read_bytes(self, path: str) -> bytes:
        """The whole object of one version."""
        client, name = self._at(path)
        with translated_object_errors(self._scheme + path, "read"):
            content: bytes = client.get(name).bytes().to_bytes()
            return content

    def open_input(self, path: str) -> Any:
        """The object's current version, opened for random reads."""
        client, name = self._at(path)
        where = self._scheme + path
        with translated_object_errors(where, "read"):
            found = client.head(name)
        tag = found["e_tag"]

        def fetch(start: int, end: int) -> bytes:
            return fetch_many([(start, end)])[0]

        def fetch_many(ranges: Sequence[tuple[int, int]]) -> list[bytes]:
            parts = [list(_parts(start, end)) for start, end in ranges]
            flat = [part for whole in parts for part in whole]
            if len(flat) == 1:
                return [fetch_part(flat[0])]
            with ThreadPoolExecutor(min(_REQUESTS_AT_ONCE, len(flat))) as pool:
                contents = pool.map(fetch_part, flat)
                return [b"".join(itertools.islice(contents, len(whole))) for whole in parts]

        def fetch_part(part: tuple[int, int]) -> bytes:
            with translated_object_errors(where, "read"):
                options = {"range": part, **({"if_match": tag} if tag else {})}
                content: bytes = client.get(name, options=options).bytes().to_bytes()
            if len(content) != part[1] - part[0]:
                raise StorageError("cannot read: the object store sent another number of bytes than were asked for",
                                   where=where, value=len(content), allowed=str(part[1] - part[0]),
                                   next_step="run the command again")  # fmt: skip
            return content

        return ObjectFile.over(ObjectReader(fetch, int(found["size"])), fetch_many)

    def exists(self, path: str) -> bool:
        """Whether the object exists."""
        return self._find(path) is not None

    def folder_exists(self, path: str) -> bool:
        """Whether an object has this name as a prefix. Raises :class:`StorageError` for a missing bucket."""
        return any(True for _ in self._listed(path, chunk_size=1))

    def files(self, folder: str) -> Iterator[ListedFile]:
        """Every object under a name, at any depth."""
        place = folder.partition("/")[0]
        for found in self._listed(folder):
            written_ns = (found["last_modified"] - _EPOCH) // timedelta(microseconds=1) * 1000
            yield ListedFile(f"{place}/{found['path']}", int(found["size"]), written_ns)

    def folders(self, folder: str) -> Iterator[str]:
        """Every prefix under ``folder`` that a slash ends, without that slash."""
        place, _, name = folder.partition("/")
        above = len(name.rstrip("/").split("/")) if name.strip("/") else 0
        found: set[str] = set()
        for one in self._listed(folder):
            parts = one["path"].split("/")[:-1]
            found.update("/".join(parts[:end]) for end in range(above + 1, len(parts) + 1))
        return (f"{place}/{one}" for one in found)

    def entries(self, folder: str) -> Entries:
        """The folders and files directly in a folder."""
        return entries_among(folder, self.files(folder))

    def walk(self, root: str, folder: str) -> Walk:
        """All objects under a name. A bucket has no links."""
        files = (
            ListedFile(file.path.removeprefix(f"{root}/"), file.size_bytes, file.mtime_ns)
            for file in self.files(f"{root}/{folder}")
        )
        return Walk(tuple(sorted(files, key=lambda file: file.path)), ())

    def delete_inner(self, root: str, path: str) -> bool:
        """Delete an object under a name; False if it does not exist."""
        client, name = self._at(f"{root}/{path}", writes=True)
        if self._find(f"{root}/{path}") is None:
            return False
        with translated_object_errors(f"{self._scheme}{root}/{path}", "delete"):
            self._retry.call(lambda: client.delete(name))
        return True

    def publish(self, path: str, write: Writer, synced: bool = True) -> int:
        """Write or replace an object and return its size in bytes."""
        client, name = self._at(path, writes=True)
        where = self._scheme + path
        with _Written(where, write) as content:
            size_bytes = content.seek(0, os.SEEK_END)
            content.seek(0)
            if size_bytes > CONDITIONAL_BYTES:
                with translated_object_errors(where, "write"):
                    client.put(name, content, use_multipart=True, chunk_size=PIECE_BYTES, max_concurrency=4)
                return size_bytes
            whole = content.read()
            for _ in range(_MOST_REPLACEMENTS):
                found = self._find(path)
                if self._upload(client, path, name, whole, "create" if found is None else {"e_tag": found["e_tag"]}):
                    return size_bytes
        raise StorageError("cannot write: other writers replaced the file during every attempt", where=where,
                           value=f"{_MOST_REPLACEMENTS} attempts", next_step="use a name of its own for every writer")  # fmt: skip

    def create(self, path: str, write: Writer) -> bool:
        """Write an object unless it exists."""
        client, name = self._at(path, writes=True)
        with _Written(self._scheme + path, write) as content:
            content.seek(0)
            return self._upload(client, path, name, content.read(), "create")

    def upload(self, path: str, source: IO[bytes]) -> bool:
        """Write the content of an open file unless ``path`` exists."""
        return self.create(path, copy_of(source))

    def _upload(self, client: Any, path: str, name: str, content: bytes, mode: object) -> bool:
        """Write under a precondition; False if it does not hold, unless an earlier attempt of this call has written."""
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        attributes = {"Content-Type": "application/octet-stream", _TOKEN: uuid.uuid4().hex}

        def attempt() -> bool:
            try:
                client.put(name, content, mode=mode, use_multipart=False, attributes=attributes)
            except (AlreadyExistsError, PreconditionError):
                return self._token_of(client, name) == attributes[_TOKEN]
            return True

        # The client repeats no write whose answer was lost; this one is safe to repeat by its token.
        with translated_object_errors(self._scheme + path, "write"):
            return self._retry.call(attempt)

    @staticmethod
    def _token_of(client: Any, name: str) -> str:
        """The token of the upload that wrote an object; empty if it does not exist or has none."""
        try:
            attributes = client.get(name, options={"range": (0, 1)}).attributes
        except Exception:  # an empty object has no first byte
            try:
                attributes = client.get(name).attributes
            except FileNotFoundError:
                return ""
        return str(attributes.get(_TOKEN, ""))

    def _find(self, path: str) -> Any:
        """The object's metadata, or None."""
        client, name = self._at(path)
        with translated_object_errors(self._scheme + path, "look for"):
            try:
                return client.head(name)
            except FileNotFoundError:
                return None

    def _listed(self, folder: str, chunk_size: int = _LISTED_AT_ONCE) -> Iterator[Any]:
        """The objects under a name, without the empty ones by which consoles show a folder."""
        client, name = self._at(folder, is_folder=True)
        with translated_object_errors(self._scheme + folder, "list"):
            for found in client.list(name or None, chunk_size=chunk_size):
                for one in found:
                    if one["path"] != name:
                        yield one

    def _at(self, path: str, *, writes: bool = False, is_folder: bool = False) -> tuple[Any, str]:
        """The client of the place, and the object's name."""
        if self._clients and os.getpid() != self._process:
            raise StorageError("an object store must not be used in a fork of a process that used it",
                               where=self._scheme + path, next_step="start a new process instead of forking")  # fmt: skip
        place, _, name = path.partition("/")
        name = name.strip("/")
        if not name and not is_folder:
            raise DataError("the location of a file must name an object, not only a bucket", where=self._scheme + path)
        location = parse_object_location(self._scheme + path)
        if writes and location.provider != "s3":
            raise StorageError("a location in Azure is read-only", where=self._scheme + path, value=location.scheme,
                               allowed="a folder, gs:// or s3:// to write to",
                               next_step="copy the files to one of them, and register the copy")  # fmt: skip
        if place not in self._clients:
            self._process, self._clients[place] = os.getpid(), open_client(location, self._settings)
        return self._clients[place], name


def _parts(start: int, end: int) -> Iterator[tuple[int, int]]:
    return ((first, min(first + PART_BYTES, end)) for first in range(start, end, PART_BYTES))


class _Written:
    """What a writer wrote: in memory while it is little, else in an unnamed temporary file."""

    def __init__(self, where: str, write: Writer) -> None:
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115 - closed by __exit__
        try:
            with translated_os_errors(where, "buffer the file"):
                write(self._file)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> IO[bytes]:
        return self._file

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _waits(settings: S3Settings) -> Backoff:
    """Exponential backoff with full jitter; the client itself repeats what the server answers with an error."""
    return Backoff(first_secs=0.5, most_secs=30.0, jitter=1.0, attempts=10, limit_secs=settings.retry_limit_secs,
                   shortens_last=False)  # fmt: skip


def stored_objects(scheme: str, settings: S3Settings) -> StoredObjects:
    """The objects for these settings; all callers in a process share connections."""
    return _shared(scheme, settings)


@lru_cache(maxsize=16)
def _shared(scheme: str, settings: S3Settings) -> StoredObjects:
    return StoredObjects(scheme, settings)
