"""Bytes under names: on a local disk, in a bucket of Google Cloud Storage or S3, or, read-only, in Azure Blob Storage.

Writes are atomic and reads see one version of a file; :mod:`warehouse.storage.local`, :mod:`warehouse.storage.gcs` and
:mod:`warehouse.storage.objects` say how.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import IO, Any

from transforms.errors import InputError, StorageError
from warehouse.storage.local import LocalFiles
from warehouse.storage.locations import GCS, GcsSettings, is_gcs, is_uri, parse_gcs, split_object, without_file_scheme
from warehouse.storage.object_locations import (
    S3Settings,
    home_uri,
    is_azure,
    is_s3,
    parse_object_location,
    parse_s3_home,
)
from warehouse.storage.stored_file import Entries, Files, ListedFile, Walk, Writer, is_inside, is_unfinished

_LOCAL = LocalFiles()
#: Concurrent existence checks in a bucket.
_LOOKS_AT_ONCE = 32


class Storage:
    """Files under ``home``; relative paths are relative to it, absolute paths and URIs are used as they are.

    Attributes:
        home: the location with its settings (:mod:`warehouse.storage.locations`, of S3
            :mod:`warehouse.storage.object_locations`), which apply to every path of the same scheme.
        root: the home without settings, as in listed paths.
    """

    def __init__(self, home: str) -> None:
        self._settings, self._s3_settings = GcsSettings(), S3Settings()
        if is_s3(home):
            place, self._s3_settings = parse_s3_home(home)
            self.home, self.root = home_uri(place, self._s3_settings), place.plain
        elif is_gcs(home):
            location = parse_gcs(home)
            self._settings = location.settings
            self.home, self.root = location.uri, location.plain
        else:
            self.home = home if is_uri(home) else os.path.abspath(home)
            self.root = self.home.rstrip("/")

    @property
    def is_local(self) -> bool:
        """Whether the home is a folder of this machine."""
        return not (is_gcs(self.home) or is_s3(self.home))

    def read_bytes(self, path: str) -> bytes:
        """The whole file. Raises :class:`~warehouse.errors.MissingFile` or :class:`StorageError`."""
        files, full, _ = self._resolve(path)
        return files.read_bytes(full)

    def open_input(self, path: str) -> Any:
        """The file opened for random reads (a ``pyarrow.NativeFile``). Errors as for :meth:`read_bytes`."""
        files, full, _ = self._resolve(path)
        return files.open_input(full)

    def exists(self, path: str) -> bool:
        """Whether the file exists."""
        files, full, _ = self._resolve(path)
        return files.exists(full)

    def missing(self, paths: Sequence[str]) -> tuple[str, ...]:
        """The paths without a file, in order; a bucket is checked for many at a time."""
        if self.is_local:
            return tuple(path for path in paths if not self.exists(path))
        with ThreadPoolExecutor(_LOOKS_AT_ONCE) as pool:
            return tuple(path for path, found in zip(paths, pool.map(self.exists, paths), strict=True) if not found)

    def list(self, path: str, *, temporaries: bool = False) -> tuple[ListedFile, ...]:
        """Every file under ``path``, at any depth, by path; a missing folder is empty.

        Unfinished writes are left out; with ``temporaries`` only they are listed.
        """
        files, full, prefix = self._resolve(path)
        listed = [
            replace(file, path=prefix + file.path)
            for file in files.files(full)
            if is_unfinished(file.path) == temporaries
        ]
        return tuple(sorted(listed, key=lambda file: file.path))

    def entries(self, path: str) -> Entries:
        """The folders and files directly in a folder, without unfinished writes; a missing folder is empty."""
        files, full, prefix = self._resolve(path)
        found = files.entries(full)
        listed = (replace(file, path=prefix + file.path) for file in found.files if not is_unfinished(file.path))
        return replace(found, files=tuple(listed))

    def folders(self, path: str) -> tuple[str, ...]:
        """Every folder under ``path``, at any depth, by path. In a bucket a folder exists while it holds an object."""
        files, full, prefix = self._resolve(path)
        return tuple(sorted(prefix + folder for folder in files.folders(full)))

    def folder_exists(self, path: str) -> bool:
        """Whether the folder exists."""
        files, full, _ = self._resolve(self.absolute(path))
        return files.folder_exists(full)

    def absolute(self, path: str) -> str:
        """A path relative to the working folder, as listings write it.

        Raises :class:`InputError` for a bucket with other settings than the home's.
        """
        if not is_uri(path):
            return os.path.abspath(path)
        if is_azure(path):
            return parse_object_location(path.rstrip("/")).plain
        if is_s3(path):
            return self._absolute_s3(path)
        if not is_gcs(path):
            return path
        location = parse_gcs(path)
        named = "?" in path
        if named and replace(location.settings, anonymous=self._settings.anonymous) != self._settings:
            raise self._other_settings(path)
        return self._prefix(location.settings.anonymous) + location.plain.removeprefix(GCS)

    def _absolute_s3(self, path: str) -> str:
        place, settings = parse_s3_home(path)
        named = "?" in path
        if named and replace(settings, anonymous=self._s3_settings.anonymous) != self._s3_settings:
            raise self._other_settings(path)
        return place.plain

    def _other_settings(self, path: str) -> InputError:
        return InputError("the settings of a location must be those of the home", value=path, allowed=self.home,
                          next_step="give settings with the home only")  # fmt: skip

    def walk(self, folder: str) -> Walk:
        """All under a folder of the home, by paths relative to the home; links are not followed."""
        files, root, _ = self._resolve("")
        return files.walk(root.rstrip("/"), folder)

    def delete(self, path: str) -> bool:
        """Delete a file of the home; False if it does not exist, or if it or a folder of its path is a link.

        Raises :class:`StorageError` for a path outside the home, and when deleting fails.
        """
        inner = path.removeprefix(f"{self.root}/")
        if is_uri(inner) or not is_inside(inner):
            raise StorageError("a file to delete must be in the home", where=path, value=path,
                               allowed=f"a path under {self.root}", next_step="delete it by hand if it is not needed")  # fmt: skip
        files, root, _ = self._resolve("")
        return files.delete_inner(root.rstrip("/"), inner)

    def write_atomic(self, path: str, content: bytes | Writer, *, synced: bool = True) -> int:
        """Write or replace a file atomically and return its size in bytes.

        ``content`` is the bytes, or a function that writes them to a file. Without ``synced`` a local file is not flushed to
        disk: a power failure may tear it, so its reader must verify it and work without it. Raises :class:`StorageError` when
        writing fails; no partial file is left.
        """
        files, full, _ = self._resolve(path)
        return files.publish(full, content if callable(content) else _writer_of(content), synced)

    def create(self, path: str, content: bytes | Writer) -> bool:
        """Write a file unless it exists: exactly one of several writers gets True. Errors as for :meth:`write_atomic`."""
        files, full, _ = self._resolve(path)
        return files.create(full, content if callable(content) else _writer_of(content))

    def upload(self, path: str, source: IO[bytes]) -> bool:
        """:meth:`create` with the content of an open file, which is sent to a bucket of Google without another copy of it."""
        files, full, _ = self._resolve(path)
        return files.upload(full, source)

    def delta_options(self, path: str) -> dict[str, str]:
        """How deltalake reaches a location in S3 or Azure (``storage_options``); empty for other locations."""
        if not (is_s3(path) or is_azure(path)):
            return {}
        from warehouse.storage.object_clients import delta_options

        return delta_options(parse_object_location(path), self._s3_settings)

    def _resolve(self, path: str) -> tuple[Files, str, str]:
        """The files that serve a path, their spelling of it, and the prefix of that spelling in listed paths."""
        full = path if is_uri(path) or os.path.isabs(path) else f"{self.root}/{path}".rstrip("/") or "/"
        if not is_uri(full):
            return _LOCAL, full, ""
        if is_gcs(full):
            from warehouse.storage.gcs import gcs_objects  # the client is loaded only for buckets

            bucket, name, anonymous = split_object(full)
            settings = replace(self._settings, anonymous=True) if anonymous else self._settings
            return gcs_objects(settings), f"{bucket}/{name}", self._prefix(anonymous)
        if is_s3(full) or is_azure(full):
            from warehouse.storage.objects import stored_objects

            scheme = parse_object_location(full).scheme
            return stored_objects(scheme, self._s3_settings), full.partition("://")[2], scheme
        local = without_file_scheme(full)
        if local == full:
            raise StorageError("the scheme of a location must be known", value=full,
                               allowed="a folder, file:///folder, gs://bucket/path, s3://bucket/path, az://container/path or "
                               "abfss://container@account.dfs.core.windows.net/path")  # fmt: skip
        return _LOCAL, local, full.removesuffix(local)

    def _prefix(self, anonymous: bool) -> str:
        return f"{GCS}anonymous@" if anonymous and not self._settings.anonymous else GCS


def _writer_of(content: bytes) -> Writer:
    def write(file: IO[bytes]) -> None:
        file.write(content)

    return write
