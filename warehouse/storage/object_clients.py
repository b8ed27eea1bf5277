"""The clients of S3 and Azure Blob Storage: opening them, and the translation of their errors.

Credentials come from the usual environment. Of S3: ``AWS_ACCESS_KEY_ID`` with ``AWS_SECRET_ACCESS_KEY`` and
``AWS_SESSION_TOKEN``, ``AWS_REGION``, ``AWS_ENDPOINT_URL``, ``AWS_PROFILE`` and the shared files, web identities, and the
metadata of containers and machines. Of Azure: ``AZURE_STORAGE_ACCOUNT_NAME`` with ``AZURE_STORAGE_ACCOUNT_KEY``,
``AZURE_STORAGE_SAS_TOKEN``, or ``AZURE_CLIENT_ID`` with ``AZURE_CLIENT_SECRET`` and ``AZURE_TENANT_ID``, federated and
managed identities.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from transforms.errors import HeadraceError, StorageError
from warehouse.storage.aws_profile import profile_settings
from warehouse.storage.errors import missing_file, unreachable
from warehouse.storage.object_locations import ObjectLocation, S3Settings

_CONNECT_TIMEOUT, _TIMEOUT = timedelta(seconds=10), timedelta(seconds=60)
_LOGIN_S3 = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, of an account that may use the bucket"
_LOGIN_AZURE = (
    "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or AZURE_STORAGE_SAS_TOKEN, of the storage account"
)
_REFUSED = ("401", "403", "Forbidden", "Unauthorized", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch")
_NO_CONTAINER = ("NoSuchBucket", "ContainerNotFound")


def open_client(location: ObjectLocation, settings: S3Settings) -> Any:
    """A client of one bucket or container. Raises :class:`StorageError` without the package, or for wrong settings."""
    try:
        from obstore.exceptions import BaseError
        from obstore.store import AzureStore, S3Store
    except ImportError as error:
        raise missing_extra("obstore", location.provider, location.plain) from error
    retry = {"retry_timeout": timedelta(seconds=settings.retry_limit_secs), "max_retries": 10}
    limits = {"connect_timeout": _CONNECT_TIMEOUT, "timeout": _TIMEOUT}
    try:
        if location.provider == "s3":
            config: dict[str, Any] = {**s3_settings(location, settings), "checksum_algorithm": "sha256"}
            client_options = {**limits, "allow_http": _is_http(config)}
            return S3Store(location.container, config=config, client_options=client_options, retry_config=retry)
        account = {"account_name": location.account} if location.account else {}
        client_options = {**limits, "allow_http": _allows_http_to_azure()}
        return AzureStore(location.container, config=account, client_options=client_options, retry_config=retry)
    except BaseError as error:
        login = _LOGIN_S3 if location.provider == "s3" else _LOGIN_AZURE
        raise StorageError(
            "cannot open the object store", where=location.plain, value=_first_line(error), next_step=login
        ) from error


def missing_extra(package: str, extra: str, where: str) -> StorageError:
    """The error for a location whose package is not installed."""
    return StorageError(f"reading this location needs the package {package}", where=where, value="not installed",
                        next_step=f"pip install 'headrace[{extra}]'")  # fmt: skip


def s3_settings(location: ObjectLocation, settings: S3Settings) -> dict[str, str]:
    """How a bucket is reached, beside what clients read from the environment themselves: region, endpoint, keys of a profile."""
    anonymous = location.anonymous or settings.anonymous
    found = {} if anonymous else profile_settings(os.environ)
    if anonymous:
        found["skip_signature"] = "true"
    if settings.region:
        found["region"] = settings.region
    if settings.endpoint:
        found["endpoint"] = f"{settings.scheme}://{settings.endpoint}"
    elif os.environ.get("AWS_ENDPOINT_URL"):
        found["endpoint"] = os.environ["AWS_ENDPOINT_URL"]
    has_region = "region" in found or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not has_region and "endpoint" not in found:
        found |= _region_of(location.container)
    return found


def delta_options(location: ObjectLocation, settings: S3Settings) -> dict[str, str]:
    """How deltalake reaches a bucket or container, beside what it reads from the environment itself."""
    if location.provider == "azure":
        return {"azure_allow_http": "true"} if _allows_http_to_azure() else {}
    found = s3_settings(location, settings)
    return {f"aws_{key}": value for key, value in found.items()} | (
        {"aws_allow_http": "true"} if _is_http(found) else {}
    )


def _is_http(found: Mapping[str, str]) -> bool:
    return found.get("endpoint", "").startswith("http://")


def _allows_http_to_azure() -> bool:
    return os.environ.get("AZURE_STORAGE_ALLOW_HTTP", "") == "true"


def _region_of(bucket: str) -> dict[str, str]:
    """The region of a bucket of Amazon's, which answers anyone who asks; nothing if it does not."""
    from pyarrow.fs import resolve_s3_region

    with contextlib.suppress(OSError):
        return {"region": resolve_s3_region(bucket)}
    return {}


def is_transient(error: Exception) -> bool:
    """Whether the same request may succeed later: the connection failed before an answer arrived."""
    from obstore.exceptions import GenericError

    return isinstance(error, GenericError) and "status code" not in str(error)


@contextlib.contextmanager
def translated_object_errors(path: str, verb: str) -> Iterator[None]:
    """Translate the client's errors to Headrace errors with the path.

    Raises :class:`~warehouse.errors.MissingFile` for an object that does not exist, else :class:`StorageError`.
    """
    from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

    try:
        yield
    except HeadraceError:
        raise
    except FileNotFoundError as error:
        raise missing_file(path, verb) from error
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise _refused(path, verb, error) from error
    except BaseError as error:
        said = _first_line(error)
        if any(code in said for code in _NO_CONTAINER):
            raise StorageError("there is no such bucket or container", where=path, value=said,
                               next_step="create it, or check the name in the location") from error  # fmt: skip
        if any(code in said for code in _REFUSED):
            raise _refused(path, verb, error) from error
        raise unreachable(said, path, verb) from error


def _refused(path: str, verb: str, error: Exception) -> StorageError:
    login = _LOGIN_S3 if path.startswith("s3") else _LOGIN_AZURE
    return StorageError(
        f"cannot {verb}: the credentials do not allow it", where=path, value=_first_line(error), next_step=login
    )


def _first_line(error: Exception) -> str:
    """The client's text without its debug lines, and the server's code."""
    said = str(error)
    line = said.splitlines()[0] if said else type(error).__name__
    codes = [code for code in (*_NO_CONTAINER, *_REFUSED) if code in said and code not in line and not code.isdigit()]
    return line[:400] + (f" ({', '.join(codes)})" if codes else "")
