"""What partitions contributed to analyses, kept between them under ``<home>/analysis``.

A contribution is known by the operator, the analysed expressions and the digests of the data they read, so it is used
exactly when all of these are equal. Its bytes are files of tf.Transform's analyzer cache, written by a job into a folder of
its own; a small document published after that job says where they are and what their digests are.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence

import tensorflow as tf
import tensorflow_transform as tft
import tfx_bsl

from transforms import documents
from transforms.documents import parse_document
from transforms.errors import DataError
from warehouse.own_files import ANALYSIS
from warehouse.storage import Storage

#: Accumulators are read again only by what wrote them: their bytes are tf.Transform's business.
_WRITER = f"tft-{tft.__version__}-{tfx_bsl.__version__}-py{sys.version_info.major}.{sys.version_info.minor}"
_ACCUMULATORS = ".gz"
_READ_AT_ONCE = 4096


def job_folder(job: str) -> str:
    """Where a job writes, relative to the home."""
    return f"{ANALYSIS}/jobs/{job}"


def write_accumulators(home: str, job: str, contribution: str, records: Sequence[bytes]) -> None:
    """Write accumulators as tf.Transform's cache does, for :func:`publish` to make known."""
    folder = f"{home}/{job_folder(job)}/{contribution}"
    tf.io.gfile.makedirs(folder)
    with tf.io.TFRecordWriter(f"{folder}/0-00000-of-00001{_ACCUMULATORS}", "GZIP") as writer:
        for record in records:
            writer.write(record)


def publish(storage: Storage, job: str, contribution: str) -> None:
    """Make known what a finished job wrote of a partition. Raises :class:`DataError` if it wrote nothing."""
    folder = f"{storage.home}/{job_folder(job)}/{contribution}"
    written = [file.path for file in storage.list(folder)]
    files = [path for path in written if path.endswith(_ACCUMULATORS)]
    if not files:
        raise DataError("an analysis wrote nothing of a partition", where=folder)
    for path in set(written) - set(files):  # tf.Transform's own table of contents, a pickle that nobody reads
        storage.delete(path)
    digests = {path.removeprefix(f"{storage.home}/"): _sha256(storage, path) for path in files}
    storage.write_atomic(_document_path(contribution), json.dumps({"files": digests}, sort_keys=True).encode())


def is_known(storage: Storage, contribution: str) -> bool:
    """Whether a contribution is kept, whole."""
    if not storage.exists(_document_path(contribution)):
        return False
    try:
        files = _files(storage, contribution)
        return all(storage.exists(path) and _sha256(storage, path) == digest for path, digest in files.items())
    except DataError:
        return False  # the partition is read again


def accumulators(storage: Storage, contribution: str) -> Sequence[bytes]:
    """The accumulators of a contribution as tf.Transform encoded them. Raises :class:`DataError` if a file is not there."""
    paths = [f"{storage.home}/{path}" for path in sorted(_files(storage, contribution))]
    for path in storage.missing(paths)[:1]:
        raise DataError("the accumulators of a partition must be there until they are merged, and were deleted",
                        where=path, next_step="analyze again: the partition is read again")  # fmt: skip
    records = tf.data.TFRecordDataset(paths, compression_type="GZIP").batch(_READ_AT_ONCE)
    return [record for batch in records.as_numpy_iterator() for record in batch.tolist()]


def _files(storage: Storage, contribution: str) -> Mapping[str, str]:
    path = _document_path(contribution)
    listed = parse_document(storage.read_bytes(path), "contribution to an analysis").fields(("files",)).at("files")
    files = listed.digests()
    for name in files:
        _ = documents.Part(name, listed, name).inside_path()
    return files


def _sha256(storage: Storage, path: str) -> str:
    return hashlib.sha256(storage.read_bytes(path)).hexdigest()


def _document_path(contribution: str) -> str:
    return f"{ANALYSIS}/{_WRITER}/{contribution}.json"
