"""Bytes under names: on a local disk, or in a bucket of Google Cloud Storage.

A file appears whole or not at all, and is read as one moment left it. How each kind keeps that promise is in
:mod:`warehouse.storage.local` and :mod:`warehouse.storage.gcs`.
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
from warehouse.storage.stored_file import Files, ListedFile, Walk, Writer, is_inside, is_unfinished

_LOCAL = LocalFiles()
#: Objects of a bucket that are looked for at the same time.
_LOOKS_AT_ONCE = 32


class Storage:
    """Files under ``home``. A relative path is taken from ``home``; an absolute path or a URI is used as it is.

    ``home`` is all that another process needs to open the same storage; ``root`` is how listings spell it. Settings of an
    object store stand in the home's query (:mod:`warehouse.storage.locations`) and serve every ``gs://`` path.
    """

    def __init__(self, home: str) -> None:
        self._settings = GcsSettings()
        if is_gcs(home):
            location = parse_gcs(home)
            self._settings = location.settings
            self.home, self.root = location.uri, location.plain
        else:
            self.home = home if is_uri(home) else os.path.abspath(home)
            self.root = self.home.rstrip("/")

    @property
    def is_local(self) -> bool:
        """Whether the home is a folder of this machine."""
        return not is_gcs(self.home)

    def read_bytes(self, path: str) -> bytes:
        """The whole file. Raises :class:`DataError` when it is missing, :class:`StorageError` when it cannot be read."""
        files, full, _ = self._resolve(path)
        return files.read_bytes(full)

    def open_input(self, path: str) -> Any:
        """The file opened for random reads (a ``pyarrow.NativeFile``). Errors as for :meth:`read_bytes`."""
        files, full, _ = self._resolve(path)
        return files.open_input(full)

    def exists(self, path: str) -> bool:
        """Whether a file of this name is there, whole."""
        files, full, _ = self._resolve(path)
        return files.exists(full)

    def missing(self, paths: Sequence[str]) -> tuple[str, ...]:
        """Those of the paths at which there is no file, in their order; a bucket is asked for many at a time."""
        if self.is_local:
            return tuple(path for path in paths if not self.exists(path))
        with ThreadPoolExecutor(_LOOKS_AT_ONCE) as pool:
            return tuple(path for path, found in zip(paths, pool.map(self.exists, paths), strict=True) if not found)

    def list(self, path: str, *, temporaries: bool = False) -> tuple[ListedFile, ...]:
        """Every file under ``path``, at any depth, by path; an absent folder is empty.

        Unfinished writes are left out, or, with ``temporaries``, are all that is listed.
        """
        files, full, prefix = self._resolve(path)
        listed = [
            replace(file, path=prefix + file.path)
            for file in files.files(full)
            if is_unfinished(file.path) == temporaries
        ]
        return tuple(sorted(listed, key=lambda file: file.path))

    def folders(self, path: str) -> tuple[str, ...]:
        """Every folder under ``path``, at any depth, by path. In a bucket a folder is there while an object is in it."""
        files, full, prefix = self._resolve(path)
        return tuple(sorted(prefix + folder for folder in files.folders(full)))

    def folder_exists(self, path: str) -> bool:
        """Whether there is a folder of this name."""
        files, full, _ = self._resolve(self.absolute(path))
        return files.folder_exists(full)

    def absolute(self, path: str) -> str:
        """A path given by a person, from the working folder, in the spelling of listings.

        Raises :class:`InputError` for a bucket with other settings than the home's.
        """
        if not is_uri(path):
            return os.path.abspath(path)
        if not is_gcs(path):
            return path
        location = parse_gcs(path)
        named = "?" in path
        if named and replace(location.settings, anonymous=self._settings.anonymous) != self._settings:
            raise InputError("the settings of an object store belong to the home", value=path, allowed=self.home,
                             next_step="give them with the home, and this location without them")  # fmt: skip
        return self._prefix(location.settings.anonymous) + location.plain.removeprefix(GCS)

    def walk(self, folder: str) -> Walk:
        """All that lies under a folder of the home, by paths relative to the home; no link is followed."""
        files, root, _ = self._resolve("")
        return files.walk(root.rstrip("/"), folder)

    def delete(self, path: str) -> bool:
        """Remove a file of the home; False if it was not there, or if a link stands in its place or on the way to it.

        Raises :class:`StorageError` for a path outside the home, and when the disk refuses.
        """
        inner = path.removeprefix(f"{self.root}/")
        if is_uri(inner) or not is_inside(inner):
            raise StorageError("only files of the home are deleted", where=path, value=path,
                               allowed=f"a path under {self.root}", next_step="delete it by hand, if it has to go")  # fmt: skip
        files, root, _ = self._resolve("")
        return files.delete_inner(root.rstrip("/"), inner)

    def write_atomic(self, path: str, content: bytes | Writer, *, synced: bool = True) -> int:
        """Publish a file: all of it, or nothing. Replaces a file of the same name. Returns its size in bytes.

        ``content`` is the bytes, or a function that writes them to the file it is given. Without ``synced`` a local file
        is not forced to disk: a power cut may tear it, so its reader verifies it and can do without it. Raises
        :class:`StorageError`, with the path, when the disk is full or refuses; nothing is left behind then.
        """
        files, full, _ = self._resolve(path)
        return files.publish(full, content if callable(content) else _writer_of(content), synced)

    def create(self, path: str, content: bytes | Writer) -> bool:
        """Publish a file where none is: of several writers exactly one gets True, and its file stays. Errors as above."""
        files, full, _ = self._resolve(path)
        return files.create(full, content if callable(content) else _writer_of(content))

    def _resolve(self, path: str) -> tuple[Files, str, str]:
        """Who serves a path, how he spells it, and what stands before his spelling in ours."""
        full = path if is_uri(path) or os.path.isabs(path) else f"{self.root}/{path}".rstrip("/") or "/"
        if not is_uri(full):
            return _LOCAL, full, ""
        if is_gcs(full):
            from warehouse.storage.gcs import gcs_objects  # only who has a bucket pays for its client

            bucket, name, anonymous = split_object(full)
            settings = replace(self._settings, anonymous=True) if anonymous else self._settings
            return gcs_objects(settings), f"{bucket}/{name}", self._prefix(anonymous)
        local = without_file_scheme(full)
        if local == full:
            raise StorageError("no file system serves this location", value=full,
                               allowed="a folder, file:///folder or gs://bucket/path")  # fmt: skip
        return _LOCAL, local, full.removesuffix(local)

    def _prefix(self, anonymous: bool) -> str:
        return f"{GCS}anonymous@" if anonymous and not self._settings.anonymous else GCS


def _writer_of(content: bytes) -> Writer:
    def write(file: IO[bytes]) -> None:
        file.write(content)

    return write
