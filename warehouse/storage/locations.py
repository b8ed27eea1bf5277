"""Locations: a folder, ``file:///folder``, or ``gs://bucket/path`` with settings of the object store in its query.

The location of a home includes its settings, so every process opens it alike:
``gs://anonymous@bucket/path?endpoint_override=localhost:4443&scheme=http``. The keys are those of ``pyarrow.fs``. All other
paths are plain: the text after ``gs://bucket/`` is the object's name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl, urlencode

from transforms.errors import InputError

GCS = "gs://"
_FILE = "file://"
_ANONYMOUS = "anonymous@"
_KEYS = ("endpoint_override", "scheme", "project_id", "retry_limit_seconds")


@dataclass(frozen=True, slots=True)
class GcsSettings:
    """How to reach Google Cloud Storage.

    Attributes:
        endpoint: ``host[:port]`` of an emulator or a private endpoint; empty for Google's.
        scheme: ``http`` or ``https``.
        anonymous: use no credentials; otherwise application default credentials.
        project: the client's project if the credentials have none.
        retry_limit_secs: how long transient errors are retried.
    """

    endpoint: str = ""
    scheme: str = "https"
    anonymous: bool = False
    project: str = ""
    retry_limit_secs: float = 120.0

    def __post_init__(self) -> None:
        if self.scheme not in ("http", "https"):
            raise InputError("the scheme of an object store must be http or https", where="scheme", value=self.scheme)
        if not (math.isfinite(self.retry_limit_secs) and self.retry_limit_secs > 0):
            raise InputError(
                "retry_limit_seconds must be > 0", where="settings of the object store", value=self.retry_limit_secs
            )

    @property
    def query(self) -> str:
        """The settings that differ from the defaults, as the query of a URI, without ``anonymous``."""
        values = (self.endpoint, self.scheme, self.project, f"{self.retry_limit_secs:g}")
        usual = GcsSettings()
        default = (usual.endpoint, usual.scheme, usual.project, f"{usual.retry_limit_secs:g}")
        pairs = [(key, value) for key, value, plain in zip(_KEYS, values, default, strict=True) if value != plain]
        return urlencode(pairs, safe=":/[]")


@dataclass(frozen=True, slots=True)
class GcsLocation:
    """An object or prefix ``name`` in ``bucket``; the name of the bucket itself is empty."""

    bucket: str
    name: str
    settings: GcsSettings

    @property
    def plain(self) -> str:
        """The location without settings."""
        return f"{GCS}{self.bucket}/{self.name}" if self.name else f"{GCS}{self.bucket}"

    @property
    def uri(self) -> str:
        """The location with its settings."""
        query = self.settings.query
        user = _ANONYMOUS if self.settings.anonymous else ""
        return f"{GCS}{user}{self.plain.removeprefix(GCS)}" + (f"?{query}" if query else "")


def is_uri(path: str) -> bool:
    """Whether a path has a scheme."""
    return "://" in path


def is_gcs(path: str) -> bool:
    """Whether a path is a ``gs://`` location."""
    return path.startswith(GCS)


def without_file_scheme(path: str) -> str:
    """``file:///folder`` as ``/folder``."""
    return path.removeprefix(_FILE)


def split_object(path: str) -> tuple[str, str, bool]:
    """Bucket, name, and whether ``anonymous@`` precedes them. Raises :class:`InputError` without a bucket."""
    rest = path.removeprefix(GCS)
    anonymous = rest.startswith(_ANONYMOUS)
    bucket, _, name = rest.removeprefix(_ANONYMOUS).partition("/")
    if not bucket or "@" in bucket:
        raise InputError(
            "a gs:// location must have a bucket", value=path, allowed="gs://bucket/path or gs://anonymous@bucket/path"
        )
    return bucket, name, anonymous


def parse_gcs(uri: str) -> GcsLocation:
    """The location in a URI with settings. Raises :class:`InputError` for an invalid part."""
    path, _, query = uri.partition("?")
    bucket, name, anonymous = split_object(path)
    given: dict[str, str] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in _KEYS or key in given:
            raise InputError("a setting of an object store must be known and given once", where=uri, value=key,
                             allowed=", ".join(_KEYS))  # fmt: skip
        given[key] = value
    try:
        limit_secs = float(given.get("retry_limit_seconds", GcsSettings().retry_limit_secs))
    except ValueError:
        raise InputError(
            "retry_limit_seconds must be a number", where=uri, value=given["retry_limit_seconds"]
        ) from None
    settings = GcsSettings(given.get("endpoint_override", ""), given.get("scheme", "https"), anonymous,
                           given.get("project_id", ""), limit_secs)  # fmt: skip
    return GcsLocation(bucket, name.rstrip("/"), settings)


def at_emulator(uri: str, host: str) -> str:
    """A ``gs://`` home at the emulator ``host`` (``http://localhost:4443``), unless the home has an endpoint."""
    location = parse_gcs(uri)
    if not host or location.settings.endpoint:
        return uri
    scheme, separator, endpoint = host.rstrip("/").rpartition("://")
    settings = replace(location.settings, endpoint=endpoint, scheme=scheme if separator else "http", anonymous=True)
    return replace(location, settings=settings).uri
