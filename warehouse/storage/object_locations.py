"""Locations in S3 and in Azure Blob Storage.

``s3://bucket/path`` (also ``s3a://``), ``az://container/path`` of the account in the environment, and
``abfss://container@account.dfs.core.windows.net/path``. The location of a home in S3 includes its settings, as one in Google
Cloud Storage does: ``s3://bucket/path?endpoint_override=localhost:9000&scheme=http&region=eu-west-1``.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import parse_qsl, urlencode

from transforms.errors import InputError

S3 = "s3://"
_S3_ALIASES = ("s3://", "s3a://", "s3n://")
_AZURE = ("az://", "azure://", "abfs://", "abfss://")
_ANONYMOUS = "anonymous@"
_KEYS = ("endpoint_override", "scheme", "region", "retry_limit_seconds")
_S3_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{1,253}[A-Za-z0-9]", re.ASCII)
_CONTAINER = re.compile(r"[a-z0-9$][a-z0-9-]{1,62}", re.ASCII)
#: The account in the host of an ``abfss://`` location.
_HOST = re.compile(r"([a-z0-9]{3,24})\.(?:dfs|blob)\.[a-z.]+", re.ASCII)

Provider = Literal["s3", "azure"]


@dataclass(frozen=True, slots=True)
class S3Settings:
    """How to reach S3. What is empty comes from the usual environment (:mod:`warehouse.storage.object_clients`).

    Attributes:
        endpoint: ``host[:port]`` of another server than Amazon's.
        scheme: ``http`` or ``https``, of ``endpoint``.
        anonymous: use no credentials, as for public buckets.
        region: the buckets' region.
        retry_limit_secs: how long transient errors are retried.
    """

    endpoint: str = ""
    scheme: str = "https"
    anonymous: bool = False
    region: str = ""
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
        usual = S3Settings()
        values = zip(_KEYS, self._values, usual._values, strict=True)
        return urlencode([(key, value) for key, value, plain in values if value != plain], safe=":/[]")

    @property
    def _values(self) -> tuple[str, ...]:
        return (self.endpoint, self.scheme, self.region, f"{self.retry_limit_secs:g}")


@dataclass(frozen=True, slots=True)
class ObjectLocation:
    """An object, or a prefix of names, in a bucket of S3 or a container of Azure.

    Attributes:
        provider: the service.
        place: the text between the scheme and the name: ``bucket``, ``anonymous@bucket``, ``container`` or
            ``container@account.dfs.core.windows.net``.
        name: the object's name; empty for the whole container.
        container: the bucket or container.
        account: of Azure, the storage account; empty for the one in the environment.
        anonymous: whether the location asks for no credentials.
        scheme: ``s3://``, ``az://`` or ``abfss://``.
    """

    provider: Provider
    place: str
    name: str
    container: str
    account: str = ""
    anonymous: bool = False
    scheme: str = S3

    @property
    def plain(self) -> str:
        """The location as listings write it."""
        return f"{self.scheme}{self.place}/{self.name}" if self.name else f"{self.scheme}{self.place}"


def is_s3(path: str) -> bool:
    """Whether a path is a location in S3."""
    return path.startswith(_S3_ALIASES)


def without_credentials(path: str) -> str:
    """A location without the word that asks for no credentials, which other clients do not know."""
    return path.replace(f"://{_ANONYMOUS}", "://")


def is_azure(path: str) -> bool:
    """Whether a path is a location in Azure Blob Storage."""
    return path.startswith(_AZURE)


def parse_object_location(path: str) -> ObjectLocation:
    """The parts of a location of S3 or Azure without settings. Raises :class:`InputError` for an invalid one."""
    scheme, _, rest = path.partition("://")
    place, _, name = rest.partition("/")
    if is_s3(path):
        bucket = place.removeprefix(_ANONYMOUS)
        if not _S3_BUCKET.fullmatch(bucket):
            raise InputError("an s3:// location must have a bucket", value=path,
                             allowed="s3://bucket/path or s3://anonymous@bucket/path")  # fmt: skip
        return ObjectLocation("s3", place, name, bucket, anonymous=place != bucket)
    container, at, host = place.partition("@")
    account = _HOST.fullmatch(host)
    if not _CONTAINER.fullmatch(container) or (at and account is None):
        raise InputError("a location in Azure must have a container", value=path,
                         allowed="az://container/path or abfss://container@account.dfs.core.windows.net/path")  # fmt: skip
    return ObjectLocation("azure", place, name, container, account[1] if account else "", scheme=f"{scheme}://")


def parse_s3_home(uri: str) -> tuple[ObjectLocation, S3Settings]:
    """The location and the settings in a URI. Raises :class:`InputError` for an invalid part."""
    path, _, query = uri.partition("?")
    location = parse_object_location(path.rstrip("/"))
    given: dict[str, str] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in _KEYS or key in given:
            raise InputError("a setting of an object store must be known and given once", where=uri, value=key,
                             allowed=", ".join(_KEYS))  # fmt: skip
        given[key] = value
    try:
        limit_secs = float(given.get("retry_limit_seconds", S3Settings().retry_limit_secs))
    except ValueError:
        raise InputError(
            "retry_limit_seconds must be a number", where=uri, value=given["retry_limit_seconds"]
        ) from None
    settings = S3Settings(given.get("endpoint_override", ""), given.get("scheme", "https"), location.anonymous,
                          given.get("region", ""), limit_secs)  # fmt: skip
    return location, settings


def home_uri(location: ObjectLocation, settings: S3Settings) -> str:
    """The location of a home with its settings."""
    return location.plain + (f"?{settings.query}" if settings.query else "")


def at_endpoint(uri: str, endpoint: str) -> str:
    """A home in S3 at the server ``endpoint`` (``http://localhost:9000``), unless the home names one itself."""
    location, settings = parse_s3_home(uri)
    if not endpoint or settings.endpoint:
        return uri
    scheme, separator, address = endpoint.rstrip("/").rpartition("://")
    return home_uri(location, replace(settings, endpoint=address, scheme=scheme if separator else "https"))
